#include "trainer/chat_template/value_operations.h"

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
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/python_text.h"
#include "trainer/chat_template/value.h"

namespace gantry {
namespace {

using Kind = Value::Kind;

// Over the places 0 .. count-1 of something.
template <typename At>
class IndexIterator final : public ValueIterator {
 public:
  IndexIterator(const Value& source, int64_t count, At at, Budget& budget)
      : ValueIterator(source.depth() + 1),
        source_(source),
        count_(count),
        at_(at),
        budget_(budget) {}

  absl::StatusOr<std::optional<Value>> Next() override {
    if (next_ == count_) return std::optional<Value>();
    GANTRY_RETURN_IF_ERROR(budget_.Spend(1));
    return std::optional<Value>(at_(source_, next_++));
  }

 private:
  const Value source_;  // kept alive
  const int64_t count_;
  const At at_;
  Budget& budget_;
  int64_t next_ = 0;
};

template <typename At>
std::shared_ptr<ValueIterator> OverIndices(const Value& source, size_t count, At at,
                                           Budget& budget) {
  return std::make_shared<IndexIterator<At>>(source, static_cast<int64_t>(count), at, budget);
}

class TextIterator final : public ValueIterator {
 public:
  TextIterator(const Value& text, Budget& budget)
      : ValueIterator(1), text_(text), budget_(budget) {}

  absl::StatusOr<std::optional<Value>> Next() override {
    const std::string& text = text_.string();
    if (at_ == text.size()) return std::optional<Value>();
    GANTRY_RETURN_IF_ERROR(budget_.Spend(1));
    const size_t begin = at_;
    NextCodePoint(text, at_);
    return std::optional<Value>(Value::String(std::string_view(text).substr(begin, at_ - begin)));
  }

 private:
  const Value text_;
  Budget& budget_;
  size_t at_ = 0;
};

absl::Status AppendRepr(const Value& value, Budget& budget, std::string& out);

absl::Status AppendItems(const std::vector<Value>& items, Budget& budget, std::string& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    GANTRY_RETURN_IF_ERROR(AppendRepr(items[i], budget, out));
  }
  return absl::OkStatus();
}

absl::Status AppendEntries(const Value& value, Budget& budget, std::string& out) {
  const bool keys = !value.Is(Kind::kDictValues);
  const bool values = !value.Is(Kind::kDictKeys);
  const bool pairs = value.Is(Kind::kDictItems);
  bool first = true;
  for (const auto& [key, item] : value.entries()) {
    if (!first) out += ", ";
    first = false;
    if (pairs) out += "(";
    if (keys) GANTRY_RETURN_IF_ERROR(AppendRepr(key, budget, out));
    if (keys && values) out += pairs ? ", " : ": ";
    if (values) GANTRY_RETURN_IF_ERROR(AppendRepr(item, budget, out));
    if (pairs) out += ")";
  }
  return absl::OkStatus();
}

absl::Status AppendView(const Value& value, Budget& budget, std::string& out) {
  out += StrCat(TypeName(value), "([");
  GANTRY_RETURN_IF_ERROR(AppendEntries(value, budget, out));
  out += "])";
  return absl::OkStatus();
}

std::string DescribeRange(const RangeData& range) {
  std::string text = StrCat("range(", range.start, ", ", range.stop);
  if (range.step != 1) text += StrCat(", ", range.step);
  return text + ")";
}

absl::Status AppendRepr(const Value& value, Budget& budget, std::string& out) {
  const size_t before = out.size();
  switch (value.kind()) {
    case Kind::kUndefined:
      out += "Undefined";
      break;
    case Kind::kNone:
      out += "None";
      break;
    case Kind::kBool:
      out += value.boolean() ? "True" : "False";
      break;
    case Kind::kInteger:
      out += std::to_string(value.integer());
      break;
    case Kind::kFloat:
      out += PythonRepr(value.floating());
      break;
    case Kind::kString:
      out += PythonRepr(value.string());
      break;
    case Kind::kList:
      out += '[';
      GANTRY_RETURN_IF_ERROR(AppendItems(value.items(), budget, out));
      out += ']';
      return budget.SpendText(out.size() - before);
    case Kind::kTuple:
      out += '(';
      GANTRY_RETURN_IF_ERROR(AppendItems(value.items(), budget, out));
      out += value.items().size() == 1 ? ",)" : ")";
      return budget.SpendText(out.size() - before);
    case Kind::kDict:
      out += '{';
      GANTRY_RETURN_IF_ERROR(AppendEntries(value, budget, out));
      out += '}';
      return budget.SpendText(out.size() - before);
    case Kind::kDictKeys:
    case Kind::kDictValues:
    case Kind::kDictItems:
      return AppendView(value, budget, out);
    case Kind::kRange:
      out += DescribeRange(value.range());
      break;
    case Kind::kIterator:
      out += "<generator object>";
      break;
    case Kind::kObject: {
      GANTRY_ASSIGN_OR_RETURN(const std::string text, value.object()->Describe(budget));
      out += text;
      break;
    }
  }
  return budget.SpendText(out.size() - before);
}

}  // namespace

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInteger:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kDictKeys:
      return "dict_keys";
    case Kind::kDictValues:
      return "dict_values";
    case Kind::kDictItems:
      return "dict_items";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kObject:
      return value.object()->type_name();
  }
  return "";
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean();
    case Kind::kInteger:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.floating() != 0;
    case Kind::kString:
      return !value.string().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
    case Kind::kDictKeys:
    case Kind::kDictValues:
    case Kind::kDictItems:
      return !value.entries().empty();
    case Kind::kRange:
      return value.range().size() != 0;
    case Kind::kIterator:
    case Kind::kObject:
      return true;
  }
  return false;
}

absl::StatusOr<int64_t> LengthOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return CountCodePoints(value.string());
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
    case Kind::kDictKeys:
    case Kind::kDictValues:
    case Kind::kDictItems:
      return static_cast<int64_t>(value.entries().size());
    case Kind::kRange:
      return value.range().size();
    case Kind::kObject: {
      GANTRY_ASSIGN_OR_RETURN(const std::optional<int64_t> length, value.object()->Length());
      if (length.has_value()) return *length;
      break;
    }
    default:
      break;
  }
  return InvalidArgument("object of type '", TypeName(value), "' has no len()");
}

absl::StatusOr<std::string> ToText(const Value& value, Budget& budget) {
  if (value.Is(Kind::kUndefined)) return std::string();
  if (value.Is(Kind::kString)) {
    GANTRY_RETURN_IF_ERROR(budget.SpendText(value.string().size()));
    return value.string();
  }
  return ToRepr(value, budget);
}

absl::StatusOr<std::string> ToRepr(const Value& value, Budget& budget) {
  std::string out;
  GANTRY_RETURN_IF_ERROR(AppendRepr(value, budget, out));
  return out;
}

absl::StatusOr<std::shared_ptr<ValueIterator>> Iterate(const Value& value, Budget& budget) {
  using Iterator = std::shared_ptr<ValueIterator>;
  switch (value.kind()) {
    case Kind::kIterator:
      return value.shared_iterator();
    case Kind::kUndefined:
      return OverIndices(value, 0, [](const Value& source, int64_t) { return source; }, budget);
    case Kind::kString:
      return Iterator(std::make_shared<TextIterator>(value, budget));
    case Kind::kList:
    case Kind::kTuple:
      return OverIndices(
          value, value.items().size(),
          [](const Value& source, int64_t i) { return source.items()[static_cast<size_t>(i)]; },
          budget);
    case Kind::kDict:
    case Kind::kDictKeys:
      return OverIndices(
          value, value.entries().size(),
          [](const Value& source, int64_t i) {
            return source.entries()[static_cast<size_t>(i)].first;
          },
          budget);
    case Kind::kDictValues:
      return OverIndices(
          value, value.entries().size(),
          [](const Value& source, int64_t i) {
            return source.entries()[static_cast<size_t>(i)].second;
          },
          budget);
    case Kind::kDictItems:
      return OverIndices(
          value, value.entries().size(),
          [](const Value& source, int64_t i) {
            const auto& [key, item] = source.entries()[static_cast<size_t>(i)];
            return Value::Tuple({key, item});
          },
          budget);
    case Kind::kRange:
      return OverIndices(
          value, static_cast<size_t>(value.range().size()),
          [](const Value& source, int64_t i) {
            return Value::Integer(source.range().start + i * source.range().step);
          },
          budget);
    default:
      return InvalidArgument("'", TypeName(value), "' object is not iterable");
  }
}

absl::StatusOr<std::vector<Value>> ToItems(const Value& value, Budget& budget) {
  std::vector<Value> items;
  GANTRY_ASSIGN_OR_RETURN(const std::shared_ptr<ValueIterator> iterator, Iterate(value, budget));
  while (true) {
    GANTRY_ASSIGN_OR_RETURN(std::optional<Value> next, iterator->Next());
    if (!next.has_value()) return items;
    items.push_back(*std::move(next));
  }
}

absl::StatusOr<Value> Shallow(Value value) {
  if (value.depth() <= kValueDepthMax) return value;
  return ResourceExhausted("values nest deeper than ", kValueDepthMax);
}

absl::StatusOr<Value> TextValue(std::string_view text, Budget& budget) {
  GANTRY_RETURN_IF_ERROR(budget.SpendText(text.size()));
  return Value::String(text);
}

}  // namespace gantry
