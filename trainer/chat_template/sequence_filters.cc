// The filters over sequences as a whole.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/arguments.h"
#include "trainer/chat_template/attribute_path.h"
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/filters.h"
#include "trainer/chat_template/methods.h"
#include "trainer/chat_template/operators.h"
#include "trainer/chat_template/python_text.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_comparison.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {
namespace {

using Kind = Value::Kind;

absl::Status TakesNothing(const Arguments& arguments) {
  return BoundArguments::Bind(arguments, {.function = "filter", .names = {}}).status();
}

// Gives what a function makes, which it calls with the first item asked for, as a generator does.
class LazyItems final : public ValueIterator {
 public:
  using Make = absl::StatusOr<std::vector<Value>> (*)(RenderState&, const Value&,
                                                      const BoundArguments&);
  LazyItems(RenderState& state, const Value& source, BoundArguments arguments, int depth, Make make)
      : ValueIterator(depth),
        state_(state),
        source_(source),
        arguments_(std::move(arguments)),
        make_(make) {}

  absl::StatusOr<std::optional<Value>> Next() override {
    if (!made_) {
      GANTRY_ASSIGN_OR_RETURN(items_, make_(state_, source_, arguments_));
      made_ = true;
    }
    if (at_ == items_.size()) return std::optional<Value>();
    GANTRY_RETURN_IF_ERROR(state_.budget().Spend(1));
    return items_[at_++];
  }

 private:
  RenderState& state_;
  const Value source_;
  const BoundArguments arguments_;
  const Make make_;
  std::vector<Value> items_;
  size_t at_ = 0;
  bool made_ = false;
};

// The iterator's items are lists of the source's at most.
template <LazyItems::Make kMake>
absl::StatusOr<Value> Lazily(RenderState& state, const Value& value, const Arguments& arguments,
                             const Signature& signature) {
  GANTRY_ASSIGN_OR_RETURN(BoundArguments bound, BoundArguments::Bind(arguments, signature));
  int depth = value.depth();
  for (const Value& argument : arguments.positional) depth = std::max(depth, argument.depth());
  for (const auto& [name, argument] : arguments.named) depth = std::max(depth, argument.depth());
  GANTRY_RETURN_IF_ERROR(state.budget().Spend(4));
  return Shallow(Value::Iterator(
      std::make_shared<LazyItems>(state, value, std::move(bound), depth + 2, kMake)));
}

// An iterator over values that are there already.
absl::StatusOr<Value> IteratorOver(RenderState& state, std::vector<Value> items) {
  GANTRY_ASSIGN_OR_RETURN(const Value list, Shallow(Value::List(std::move(items))));
  GANTRY_ASSIGN_OR_RETURN(std::shared_ptr<ValueIterator> iterator, Iterate(list, state.budget()));
  return Shallow(Value::Iterator(std::move(iterator)));
}

absl::StatusOr<Value> Length(RenderState&, const Value& value, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing(arguments));
  GANTRY_ASSIGN_OR_RETURN(const int64_t length, LengthOf(value));
  return Value::Integer(length);
}

absl::StatusOr<Value> Default(RenderState&, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(const BoundArguments bound,
                          BoundArguments::Bind(arguments, {.function = "default",
                                                           .names = {"default_value", "boolean"}}));
  const bool replace = value.Is(Kind::kUndefined) || (bound.Flag(1, false) && !Truth(value));
  return replace ? bound.Or(0, Value::String("")) : value;
}

absl::StatusOr<Value> First(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing(arguments));
  GANTRY_ASSIGN_OR_RETURN(const std::shared_ptr<ValueIterator> iterator,
                          Iterate(value, state.budget()));
  GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> first, iterator->Next());
  return first.has_value() ? *first : Value::Undefined("No first item, sequence was empty.");
}

// What Python can walk backwards.
absl::StatusOr<std::vector<Value>> Reversed(RenderState& state, const Value& value) {
  if (value.Is(Kind::kIterator)) {
    return InvalidArgument("'generator' object is not reversible");
  }
  GANTRY_ASSIGN_OR_RETURN(std::vector<Value> items, ToItems(value, state.budget()));
  std::reverse(items.begin(), items.end());
  return items;
}

absl::StatusOr<Value> Last(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing(arguments));
  GANTRY_ASSIGN_OR_RETURN(const std::vector<Value> items, Reversed(state, value));
  return items.empty() ? Value::Undefined("No last item, sequence was empty.") : items[0];
}

absl::StatusOr<Value> Reverse(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing(arguments));
  if (value.Is(Kind::kIterator)) {
    GANTRY_ASSIGN_OR_RETURN(std::vector<Value> items, ToItems(value, state.budget()));
    std::reverse(items.begin(), items.end());
    return Shallow(Value::List(std::move(items)));
  }
  GANTRY_ASSIGN_OR_RETURN(std::vector<Value> items, Reversed(state, value));
  if (!value.Is(Kind::kString)) return IteratorOver(state, std::move(items));
  std::string out;
  for (const Value& item : items) out += item.string();
  return Value::String(out);
}

absl::StatusOr<Value> List(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing(arguments));
  GANTRY_ASSIGN_OR_RETURN(std::vector<Value> items, ToItems(value, state.budget()));
  return Shallow(Value::List(std::move(items)));
}

absl::StatusOr<std::vector<Value>> MakeItems(RenderState& state, const Value& value,
                                             const BoundArguments&) {
  if (value.Is(Kind::kUndefined)) return std::vector<Value>();
  if (!value.Is(Kind::kDict)) return InvalidArgument("Can only get item pairs from a mapping.");
  return ToItems(Value::DictView(value, Kind::kDictItems), state.budget());
}

absl::StatusOr<Value> Items(RenderState& state, const Value& value, const Arguments& arguments) {
  return Lazily<MakeItems>(state, value, arguments, {.function = "items", .names = {}});
}

// Text compares without regard to case unless told otherwise.
Value SortKey(const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.Is(Kind::kString)) return value;
  return Value::String(PythonLower(value.string()));
}

absl::StatusOr<Value> Sort(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(
          arguments, {.function = "sort", .names = {"reverse", "case_sensitive", "attribute"}}));
  GANTRY_ASSIGN_OR_RETURN(const std::vector<AttributePath> paths,
                          AttributePath::ParseSeveral(bound.Or(2, Value())));
  GANTRY_ASSIGN_OR_RETURN(const std::vector<Value> items, ToItems(value, state.budget()));
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> parts;
    for (const AttributePath& path : paths) {
      GANTRY_ASSIGN_OR_RETURN(const Value part, path.Read(state, item));
      parts.push_back(SortKey(part, bound.Flag(1, false)));
    }
    keys.push_back(Value::List(std::move(parts)));
  }
  const SortOrder order = bound.Flag(0, false) ? SortOrder::kDescending : SortOrder::kAscending;
  GANTRY_ASSIGN_OR_RETURN(std::vector<Value> sorted,
                          SortByKeys(items, keys, order, state.budget()));
  return Shallow(Value::List(std::move(sorted)));
}

absl::StatusOr<Value> DictSort(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments,
                           {.function = "dictsort", .names = {"case_sensitive", "by", "reverse"}}));
  GANTRY_ASSIGN_OR_RETURN(const std::string by, bound.Text(1, "key"));
  if (by != "key" && by != "value") {
    return InvalidArgument("dictsort sorts by \"key\" or \"value\"");
  }
  if (!value.Is(Kind::kDict)) {
    return InvalidArgument("dictsort needs a mapping, not ", TypeName(value));
  }
  std::vector<Value> pairs;
  std::vector<Value> keys;
  GANTRY_RETURN_IF_ERROR(state.budget().SpendItems(value.entries().size()));
  for (const auto& [key, item] : value.entries()) {
    pairs.push_back(Value::Tuple({key, item}));
    keys.push_back(SortKey(by == "key" ? key : item, bound.Flag(0, false)));
  }
  const SortOrder order = bound.Flag(2, false) ? SortOrder::kDescending : SortOrder::kAscending;
  GANTRY_ASSIGN_OR_RETURN(std::vector<Value> sorted,
                          SortByKeys(pairs, keys, order, state.budget()));
  return Shallow(Value::List(std::move(sorted)));
}

absl::StatusOr<std::vector<Value>> MakeUnique(RenderState& state, const Value& value,
                                              const BoundArguments& bound) {
  GANTRY_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound.Or(1, Value())));
  GANTRY_ASSIGN_OR_RETURN(const std::vector<Value> items, ToItems(value, state.budget()));
  std::vector<Value> unique;
  Value::Entries seen;
  for (const Value& item : items) {
    GANTRY_ASSIGN_OR_RETURN(const Value part, path.Read(state, item));
    const size_t before = seen.size();
    GANTRY_RETURN_IF_ERROR(
        SetKey(seen, SortKey(part, bound.Flag(0, false)), Value(), state.budget()));
    if (seen.size() > before) unique.push_back(item);
  }
  return unique;
}

absl::StatusOr<Value> Unique(RenderState& state, const Value& value, const Arguments& arguments) {
  return Lazily<MakeUnique>(state, value, arguments,
                            {.function = "unique", .names = {"case_sensitive", "attribute"}});
}

template <bool kLargest>
absl::StatusOr<Value> Extreme(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments,
                           {.function = "min", .names = {"case_sensitive", "attribute"}}));
  GANTRY_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound.Or(1, Value())));
  GANTRY_ASSIGN_OR_RETURN(const std::vector<Value> items, ToItems(value, state.budget()));
  if (items.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    GANTRY_ASSIGN_OR_RETURN(const Value part, path.Read(state, items[i]));
    const Value key = SortKey(part, bound.Flag(0, false));
    bool better = i == 0;
    if (i > 0) {
      GANTRY_ASSIGN_OR_RETURN(better, kLargest ? Less(best_key, key, state.budget())
                                               : Less(key, best_key, state.budget()));
    }
    if (!better) continue;
    best = i;
    best_key = key;
  }
  return items[best];
}

absl::StatusOr<Value> Sum(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "sum", .names = {"attribute", "start"}}));
  GANTRY_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound.Or(0, Value())));
  GANTRY_ASSIGN_OR_RETURN(const std::vector<Value> items, ToItems(value, state.budget()));
  Value sum = bound.Or(1, Value::Integer(0));
  if (sum.Is(Kind::kString)) return InvalidArgument("sum() can't sum strings");
  for (const Value& item : items) {
    GANTRY_ASSIGN_OR_RETURN(const Value part, path.Read(state, item));
    GANTRY_ASSIGN_OR_RETURN(sum, Calculate("+", sum, part, state.budget()));
  }
  return sum;
}

absl::StatusOr<std::vector<Value>> MakeBatch(RenderState& state, const Value& value,
                                             const BoundArguments& bound) {
  GANTRY_ASSIGN_OR_RETURN(const int64_t size, bound.Integer(0, 1));
  GANTRY_ASSIGN_OR_RETURN(const std::vector<Value> items, ToItems(value, state.budget()));
  std::vector<Value> rows;
  std::vector<Value> row;
  for (const Value& item : items) {
    if (static_cast<int64_t>(row.size()) == size) {
      rows.push_back(Value::List(std::exchange(row, {})));
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    const int64_t missing = size - static_cast<int64_t>(row.size());
    if (bound.IsSet(1) && missing > 0) {
      GANTRY_RETURN_IF_ERROR(state.budget().SpendItems(static_cast<size_t>(missing)));
      row.insert(row.end(), static_cast<size_t>(missing), bound[1]);
    }
    rows.push_back(Value::List(std::move(row)));
  }
  return rows;
}

absl::StatusOr<Value> Batch(RenderState& state, const Value& value, const Arguments& arguments) {
  return Lazily<MakeBatch>(
      state, value, arguments,
      {.function = "batch", .names = {"linecount", "fill_with"}, .required = 1});
}

absl::StatusOr<std::vector<Value>> MakeSlice(RenderState& state, const Value& value,
                                             const BoundArguments& bound) {
  GANTRY_ASSIGN_OR_RETURN(const int64_t slices, bound.Integer(0, 1));
  GANTRY_ASSIGN_OR_RETURN(const std::vector<Value> items, ToItems(value, state.budget()));
  if (slices == 0) return InvalidArgument("integer division or modulo by zero");
  if (slices < 0) return std::vector<Value>();
  GANTRY_RETURN_IF_ERROR(state.budget().SpendItems(static_cast<size_t>(slices)));
  const auto size = static_cast<int64_t>(items.size());
  std::vector<Value> rows;
  int64_t begin = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const bool extra = i < size % slices;
    const int64_t end = begin + size / slices + (extra ? 1 : 0);
    std::vector<Value> row(items.begin() + begin, items.begin() + end);
    if (bound.IsSet(1) && !extra) row.push_back(bound[1]);
    rows.push_back(Value::List(std::move(row)));
    begin = end;
  }
  return rows;
}

absl::StatusOr<Value> Slice(RenderState& state, const Value& value, const Arguments& arguments) {
  return Lazily<MakeSlice>(state, value, arguments,
                           {.function = "slice", .names = {"slices", "fill_with"}, .required = 1});
}

absl::StatusOr<Value> Attribute(RenderState& state, const Value& value,
                                const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "attr", .names = {"name"}, .required = 1}));
  GANTRY_ASSIGN_OR_RETURN(const std::string name, TextOf(bound[0]));
  if (value.Is(Kind::kUndefined)) return InvalidArgument(value.undefined_message());
  GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> found, value.Is(Kind::kObject)
                                                                ? value.object()->Attribute(name)
                                                                : BindMethod(state, value, name));
  if (found.has_value()) return *found;
  return Value::Undefined(StrCat("'", TypeName(value), " object' has no attribute '", name, "'"));
}

}  // namespace

FilterFunction FindSequenceFilter(std::string_view name) {
  struct NamedFilter {
    std::string_view name;
    FilterFunction function;
  };
  constexpr NamedFilter kFilters[] = {
      {"attr", &Attribute},     {"batch", &Batch},     {"count", &Length},
      {"d", &Default},          {"default", &Default}, {"dictsort", &DictSort},
      {"first", &First},        {"items", &Items},     {"last", &Last},
      {"length", &Length},      {"list", &List},       {"max", &Extreme<true>},
      {"min", &Extreme<false>}, {"reverse", &Reverse}, {"slice", &Slice},
      {"sort", &Sort},          {"sum", &Sum},         {"unique", &Unique},
  };
  for (const NamedFilter& filter : kFilters) {
    if (filter.name == name) return filter.function;
  }
  return nullptr;
}

}  // namespace gantry
