#include "trainer/chat_template/attribute_path.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/attributes.h"
#include "trainer/chat_template/python_text.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {
namespace {

std::vector<Value> PartsOf(std::string_view text) {
  std::vector<Value> parts;
  for (const std::string_view part : PythonSplit(text, {.separator = "."})) {
    int64_t index = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = !part.empty() && part[0] != '-' && read.ec == std::errc() &&
                          read.ptr == part.data() + part.size();
    parts.push_back(is_index ? Value::Integer(index) : Value::String(part));
  }
  return parts;
}

}  // namespace

absl::StatusOr<AttributePath> AttributePath::Parse(const Value& attribute) {
  AttributePath path;
  if (attribute.Is(Value::Kind::kString)) {
    path.parts_ = PartsOf(attribute.string());
  } else if (attribute.Is(Value::Kind::kInteger)) {
    path.parts_ = {attribute};
  } else if (!attribute.Is(Value::Kind::kNone)) {
    return InvalidArgument("an attribute must be a str or an int, not ", TypeName(attribute));
  }
  return path;
}

absl::StatusOr<std::vector<AttributePath>> AttributePath::ParseSeveral(const Value& attribute) {
  std::vector<AttributePath> paths;
  if (!attribute.Is(Value::Kind::kString)) {
    GANTRY_ASSIGN_OR_RETURN(AttributePath path, Parse(attribute));
    paths.push_back(std::move(path));
    return paths;
  }
  for (const std::string_view one : PythonSplit(attribute.string(), {.separator = ","})) {
    paths.emplace_back().parts_ = PartsOf(one);
  }
  return paths;
}

absl::StatusOr<Value> AttributePath::Read(RenderState& state, const Value& value) const {
  Value read = value;
  for (const Value& part : parts_) {
    GANTRY_ASSIGN_OR_RETURN(read, GetItem(state, read, part));
    if (default_.has_value() && read.Is(Value::Kind::kUndefined)) read = *default_;
  }
  return read;
}

}  // namespace gantry
