#include "trainer/chat_template/brace_format.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/arguments.h"
#include "trainer/chat_template/attributes.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {
namespace {

// The value that "0", "name", "", "a.b" or "a[0]" stands for.
class FieldReader {
 public:
  FieldReader(RenderState& state, const Arguments& arguments)
      : state_(state), arguments_(arguments) {}

  absl::StatusOr<Value> Read(std::string_view field) {
    size_t end = std::min(field.find_first_of(".["), field.size());
    GANTRY_ASSIGN_OR_RETURN(Value value, First(field.substr(0, end)));
    while (end < field.size()) {
      const bool bracket = field[end] == '[';
      const size_t begin = end + 1;
      const size_t close = bracket ? field.find(']', begin) : field.find_first_of(".[", begin);
      if (bracket && close == std::string_view::npos) {
        return InvalidArgument("Missing ']' in format string");
      }
      end = std::min(close, field.size());
      const std::string_view name = field.substr(begin, end - begin);
      if (name.empty()) return InvalidArgument("Empty attribute in format string");
      int64_t index = 0;
      if (bracket && ParseIndex(name, index)) {
        GANTRY_ASSIGN_OR_RETURN(value, GetItem(state_, value, Value::Integer(index)));
      } else if (bracket) {
        GANTRY_ASSIGN_OR_RETURN(value, GetItem(state_, value, Value::String(name)));
      } else {
        GANTRY_ASSIGN_OR_RETURN(value, GetAttribute(state_, value, name));
      }
      if (bracket) ++end;
    }
    return value;
  }

 private:
  static bool ParseIndex(std::string_view text, int64_t& index) {
    const auto read = std::from_chars(text.data(), text.data() + text.size(), index);
    return read.ec == std::errc() && read.ptr == text.data() + text.size() && text[0] != '-';
  }

  absl::StatusOr<Value> First(std::string_view name) {
    int64_t index = 0;
    if (name.empty()) {
      if (manual_) return InvalidArgument("cannot switch from manual to automatic numbering");
      automatic_ = true;
      index = next_++;
    } else if (ParseIndex(name, index)) {
      if (automatic_) return InvalidArgument("cannot switch from automatic to manual numbering");
      manual_ = true;
    } else {
      for (const auto& [known, value] : arguments_.named) {
        if (known == name) return value;
      }
      return InvalidArgument("format() misses its argument '", name, "'");
    }
    if (index < static_cast<int64_t>(arguments_.positional.size())) {
      return arguments_.positional[static_cast<size_t>(index)];
    }
    return InvalidArgument("format() has no positional argument ", index);
  }

  RenderState& state_;
  const Arguments& arguments_;
  int64_t next_ = 0;
  bool automatic_ = false;
  bool manual_ = false;
};

}  // namespace

absl::StatusOr<std::string> FormatBraces(RenderState& state, std::string_view format,
                                         const Arguments& arguments) {
  FieldReader fields(state, arguments);
  std::string out;
  for (size_t at = 0; at < format.size();) {
    const char c = format[at];
    const bool doubled = at + 1 < format.size() && format[at + 1] == c;
    if ((c != '{' && c != '}') || doubled) {
      out += c;
      at += doubled && (c == '{' || c == '}') ? 2 : 1;
      continue;
    }
    const size_t close = format.find('}', at);
    if (c == '}' || close == std::string_view::npos) {
      return InvalidArgument("Single '", std::string(1, c), "' encountered in format string");
    }
    std::string_view field = format.substr(at + 1, close - at - 1);
    at = close + 1;
    if (field.find_first_of(":{") != std::string_view::npos) {
      return InvalidArgument("format specifications ({:...}) are not supported");
    }
    bool repr = false;
    const size_t conversion = field.find('!');
    if (conversion != std::string_view::npos) {
      const std::string_view kind = field.substr(conversion + 1);
      if (kind != "s" && kind != "r") return InvalidArgument("conversion !", kind, " in a format");
      repr = kind == "r";
      field = field.substr(0, conversion);
    }
    GANTRY_ASSIGN_OR_RETURN(const Value value, fields.Read(field));
    GANTRY_ASSIGN_OR_RETURN(const std::string text,
                            repr ? ToRepr(value, state.budget()) : ToText(value, state.budget()));
    out += text;
    GANTRY_RETURN_IF_ERROR(state.budget().CheckText(out.size()));
  }
  GANTRY_RETURN_IF_ERROR(state.budget().SpendText(out.size()));
  return out;
}

}  // namespace gantry
