#include "trainer/chat_template/attributes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/arguments.h"
#include "trainer/chat_template/methods.h"
#include "trainer/chat_template/python_text.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_comparison.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {
namespace {

using Kind = Value::Kind;

absl::StatusOr<std::optional<Value>> OwnAttribute(RenderState& state, const Value& value,
                                                  std::string_view name) {
  if (value.Is(Kind::kObject)) return value.object()->Attribute(name);
  return BindMethod(state, value, name);
}

Value NoAttribute(const Value& value, std::string_view name) {
  return Value::Undefined(StrCat("'", TypeName(value), " object' has no attribute '", name, "'"));
}

// The value at a place that may count from the end.
absl::StatusOr<std::optional<Value>> At(RenderState& state, const Value& value, int64_t index) {
  GANTRY_ASSIGN_OR_RETURN(const int64_t size, LengthOf(value));
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::optional<Value>();
  const auto place = static_cast<size_t>(index);
  if (value.is_list_or_tuple()) return value.items()[place];
  if (value.Is(Kind::kRange)) {
    return Value::Integer(value.range().start + index * value.range().step);
  }
  const std::string& text = value.string();
  GANTRY_RETURN_IF_ERROR(state.budget().SpendText(text.size()));
  const std::vector<size_t> offsets = CodePointOffsets(text);
  return Value::String(
      std::string_view(text).substr(offsets[place], offsets[place + 1] - offsets[place]));
}

// The places start, start + step, ... of a slice, as Python clips them.
struct Places {
  int64_t start;
  int64_t step;
  int64_t count;
};

absl::StatusOr<Places> PlacesOf(const SliceParts& parts, int64_t size) {
  int64_t step = 1;
  if (!parts.step.Is(Kind::kNone)) {
    GANTRY_ASSIGN_OR_RETURN(step, IntegerOf(parts.step));
  }
  if (step == 0) return InvalidArgument("slice step cannot be zero");
  // No step is larger than the whole, and -step must exist.
  step = std::clamp(step, -size - 1, size + 1);
  const int64_t lowest = step < 0 ? -1 : 0;
  const int64_t highest = step < 0 ? size - 1 : size;
  const auto clip = [&](const Value& part, int64_t otherwise) -> absl::StatusOr<int64_t> {
    if (part.Is(Kind::kNone)) return otherwise;
    GANTRY_ASSIGN_OR_RETURN(int64_t place, IntegerOf(part));
    if (place < 0) place += size;
    return std::clamp(place, lowest, highest);
  };
  GANTRY_ASSIGN_OR_RETURN(const int64_t start, clip(parts.start, step < 0 ? highest : lowest));
  GANTRY_ASSIGN_OR_RETURN(const int64_t stop, clip(parts.stop, step < 0 ? lowest : highest));
  return Places{start, step, RangeData{start, stop, step}.size()};
}

}  // namespace

absl::StatusOr<Value> GetAttribute(RenderState& state, const Value& value, std::string_view name) {
  if (value.Is(Kind::kUndefined)) return InvalidArgument(value.undefined_message());
  GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> own, OwnAttribute(state, value, name));
  if (own.has_value()) return *own;
  if (value.Is(Kind::kDict)) {
    GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> item,
                            FindKey(value.entries(), Value::String(name), state.budget()));
    if (item.has_value()) return *item;
  }
  return NoAttribute(value, name);
}

absl::StatusOr<Value> GetItem(RenderState& state, const Value& value, const Value& key) {
  if (value.Is(Kind::kUndefined)) return InvalidArgument(value.undefined_message());
  const bool sequence =
      value.is_list_or_tuple() || value.Is(Kind::kString) || value.Is(Kind::kRange);
  if (sequence && (key.Is(Kind::kInteger) || key.Is(Kind::kBool))) {
    GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> item, At(state, value, key.AsInteger()));
    if (item.has_value()) return *item;
  }
  if (value.Is(Kind::kDict) && IsHashable(key)) {
    GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> item,
                            FindKey(value.entries(), key, state.budget()));
    if (item.has_value()) return *item;
  }
  if (key.Is(Kind::kString)) {
    GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> own,
                            OwnAttribute(state, value, key.string()));
    if (own.has_value()) return *own;
    return NoAttribute(value, key.string());
  }
  GANTRY_ASSIGN_OR_RETURN(const std::string text, ToRepr(key, state.budget()));
  return Value::Undefined(StrCat(TypeName(value), " object has no element ", text));
}

absl::StatusOr<Value> GetSlice(RenderState& state, const Value& value, const SliceParts& parts) {
  if (value.Is(Kind::kUndefined)) return InvalidArgument(value.undefined_message());
  if (!value.is_list_or_tuple() && !value.Is(Kind::kString) && !value.Is(Kind::kRange)) {
    return InvalidArgument("'", TypeName(value), "' object has no slices");
  }
  GANTRY_ASSIGN_OR_RETURN(const int64_t size, LengthOf(value));
  GANTRY_ASSIGN_OR_RETURN(const Places places, PlacesOf(parts, size));
  if (value.Is(Kind::kRange)) {
    const RangeData& range = value.range();
    const int64_t start = range.start + places.start * range.step;
    const int64_t step = range.step * places.step;
    return Value::Range({start, start + places.count * step, step});
  }
  if (value.Is(Kind::kString)) {
    const std::string& text = value.string();
    GANTRY_RETURN_IF_ERROR(state.budget().SpendText(text.size()));
    const std::vector<size_t> offsets = CodePointOffsets(text);
    std::string out;
    for (int64_t i = 0; i < places.count; ++i) {
      const auto at = static_cast<size_t>(places.start + i * places.step);
      out += std::string_view(text).substr(offsets[at], offsets[at + 1] - offsets[at]);
    }
    return Value::String(out);
  }
  GANTRY_RETURN_IF_ERROR(state.budget().SpendItems(static_cast<size_t>(places.count)));
  std::vector<Value> items;
  for (int64_t i = 0; i < places.count; ++i) {
    items.push_back(value.items()[static_cast<size_t>(places.start + i * places.step)]);
  }
  return value.Is(Kind::kList) ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

}  // namespace gantry
