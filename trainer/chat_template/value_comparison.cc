#include "trainer/chat_template/value_comparison.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
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
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {
namespace {

using Kind = Value::Kind;

absl::StatusOr<bool> EqualItems(const std::vector<Value>& a, const std::vector<Value>& b,
                                Budget& budget) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    GANTRY_ASSIGN_OR_RETURN(const bool equal, Equal(a[i], b[i], budget));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<bool> EqualEntries(const Value::Entries& a, const Value::Entries& b,
                                  Budget& budget) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, item] : a) {
    GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> other, FindKey(b, key, budget));
    if (!other.has_value()) return false;
    GANTRY_ASSIGN_OR_RETURN(const bool equal, Equal(item, *other, budget));
    if (!equal) return false;
  }
  return true;
}

bool EqualRanges(const RangeData& a, const RangeData& b) {
  const int64_t size = a.size();
  return size == b.size() && (size == 0 || a.start == b.start) && (size < 2 || a.step == b.step);
}

// -1, 0, 1, or nothing where one is not a number.
std::optional<int> CompareNumbers(const Value& a, const Value& b) {
  if (!a.Is(Kind::kFloat) && !b.Is(Kind::kFloat)) {
    const int64_t left = a.AsInteger();
    const int64_t right = b.AsInteger();
    return left < right ? -1 : left > right ? 1 : 0;
  }
  if (std::isnan(a.AsFloat()) || std::isnan(b.AsFloat())) return std::nullopt;
  if (a.Is(Kind::kFloat) && b.Is(Kind::kFloat)) {
    return a.floating() < b.floating() ? -1 : a.floating() > b.floating() ? 1 : 0;
  }
  // An int against a float, exactly: long double holds 64 bits here.
  const auto exact = [](const Value& value) {
    return value.Is(Kind::kFloat) ? static_cast<long double>(value.floating())
                                  : static_cast<long double>(value.AsInteger());
  };
  return exact(a) < exact(b) ? -1 : exact(a) > exact(b) ? 1 : 0;
}

absl::Status NoOrder(std::string_view operation, const Value& a, const Value& b) {
  return InvalidArgument("'", operation, "' not supported between instances of '", TypeName(a),
                         "' and '", TypeName(b), "'");
}

// Where two lists first differ, or the size of the shorter one.
absl::StatusOr<size_t> FirstDifference(const std::vector<Value>& a, const std::vector<Value>& b,
                                       Budget& budget) {
  const size_t common = std::min(a.size(), b.size());
  for (size_t i = 0; i < common; ++i) {
    GANTRY_ASSIGN_OR_RETURN(const bool equal, Equal(a[i], b[i], budget));
    if (!equal) return i;
  }
  return common;
}

using Comparison = absl::StatusOr<bool> (*)(const Value&, const Value&, Budget&);

absl::StatusOr<bool> CompareLists(const std::vector<Value>& a, const std::vector<Value>& b,
                                  bool when_equal, Comparison compare, Budget& budget) {
  GANTRY_ASSIGN_OR_RETURN(const size_t at, FirstDifference(a, b, budget));
  if (at < a.size() && at < b.size()) return compare(a[at], b[at], budget);
  return a.size() < b.size() || (when_equal && a.size() == b.size());
}

absl::StatusOr<bool> InRange(const RangeData& range, const Value& item) {
  if (!item.is_number()) return false;
  if (item.Is(Kind::kFloat) && item.floating() != std::floor(item.floating())) return false;
  if (std::abs(item.AsFloat()) > 1e18) return false;
  const int64_t number =
      item.Is(Kind::kFloat) ? static_cast<int64_t>(item.floating()) : item.AsInteger();
  const __int128 offset = static_cast<__int128>(number) - range.start;
  return offset % range.step == 0 && offset / range.step >= 0 && offset / range.step < range.size();
}

}  // namespace

absl::StatusOr<bool> Equal(const Value& a, const Value& b, Budget& budget) {
  GANTRY_RETURN_IF_ERROR(budget.Spend(1));
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b) == std::optional<int>(0);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString:
      return a.string() == b.string();
    case Kind::kList:
    case Kind::kTuple:
      return EqualItems(a.items(), b.items(), budget);
    case Kind::kDict:
    case Kind::kDictKeys:
    case Kind::kDictItems:
      return EqualEntries(a.entries(), b.entries(), budget);
    case Kind::kRange:
      return EqualRanges(a.range(), b.range());
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    default:
      return a.SameAs(b);
  }
}

absl::StatusOr<bool> Less(const Value& a, const Value& b, Budget& budget) {
  GANTRY_RETURN_IF_ERROR(budget.Spend(1));
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b) == std::optional<int>(-1);
  if (a.kind() != b.kind()) return NoOrder("<", a, b);
  if (a.Is(Kind::kString)) return a.string() < b.string();
  if (!a.is_list_or_tuple()) return NoOrder("<", a, b);
  return CompareLists(a.items(), b.items(), false, &Less, budget);
}

absl::StatusOr<bool> LessOrEqual(const Value& a, const Value& b, Budget& budget) {
  GANTRY_RETURN_IF_ERROR(budget.Spend(1));
  if (a.is_number() && b.is_number()) {
    const std::optional<int> order = CompareNumbers(a, b);
    return order.has_value() && *order <= 0;
  }
  if (a.kind() != b.kind()) return NoOrder("<=", a, b);
  if (a.Is(Kind::kString)) return a.string() <= b.string();
  if (!a.is_list_or_tuple()) return NoOrder("<=", a, b);
  return CompareLists(a.items(), b.items(), true, &LessOrEqual, budget);
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item, Budget& budget) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.Is(Kind::kString)) {
        return InvalidArgument("'in <string>' requires string as left operand, not ",
                               TypeName(item));
      }
      GANTRY_RETURN_IF_ERROR(budget.SpendText(container.string().size()));
      return container.string().find(item.string()) != std::string::npos;
    case Kind::kDict:
    case Kind::kDictKeys: {
      if (!IsHashable(item)) return InvalidArgument("unhashable type: '", TypeName(item), "'");
      GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> found,
                              FindKey(container.entries(), item, budget));
      return found.has_value();
    }
    case Kind::kRange:
      return InRange(container.range(), item);
    default:
      break;
  }
  GANTRY_ASSIGN_OR_RETURN(const std::shared_ptr<ValueIterator> iterator,
                          Iterate(container, budget));
  while (true) {
    GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> next, iterator->Next());
    if (!next.has_value()) return false;
    GANTRY_ASSIGN_OR_RETURN(const bool equal, Equal(*next, item, budget));
    if (equal) return true;
  }
}

bool IsHashable(const Value& value) {
  if (value.Is(Kind::kTuple)) {
    return std::all_of(value.items().begin(), value.items().end(),
                       [](const Value& item) { return IsHashable(item); });
  }
  return !value.Is(Kind::kList) && !value.Is(Kind::kDict) && !value.is_dict_view();
}

absl::StatusOr<std::optional<Value>> FindKey(const Value::Entries& entries, const Value& key,
                                             Budget& budget) {
  GANTRY_RETURN_IF_ERROR(budget.Spend(static_cast<int64_t>(entries.size()) / 16));
  if (key.Is(Kind::kString)) {
    const Value* found = FindText(entries, key.string());
    return found == nullptr ? std::optional<Value>() : *found;
  }
  for (const auto& [candidate, item] : entries) {
    GANTRY_ASSIGN_OR_RETURN(const bool equal, Equal(candidate, key, budget));
    if (equal) return std::optional<Value>(item);
  }
  return std::optional<Value>();
}

const Value* FindText(const Value::Entries& entries, std::string_view key) {
  for (const auto& [candidate, item] : entries) {
    if (candidate.Is(Kind::kString) && candidate.string() == key) return &item;
  }
  return nullptr;
}

absl::Status SetKey(Value::Entries& entries, const Value& key, const Value& value, Budget& budget) {
  if (!IsHashable(key)) return InvalidArgument("unhashable type: '", TypeName(key), "'");
  GANTRY_RETURN_IF_ERROR(budget.Spend(static_cast<int64_t>(entries.size()) / 16));
  for (auto& [candidate, item] : entries) {
    GANTRY_ASSIGN_OR_RETURN(const bool equal, Equal(candidate, key, budget));
    if (!equal) continue;
    item = value;
    return absl::OkStatus();
  }
  entries.emplace_back(key, value);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Value>> SortByKeys(const std::vector<Value>& items,
                                              const std::vector<Value>& keys, SortOrder order,
                                              Budget& budget) {
  std::vector<size_t> from(items.size());
  std::iota(from.begin(), from.end(), size_t{0});
  if (order == SortOrder::kDescending) std::reverse(from.begin(), from.end());
  std::vector<size_t> to(items.size());
  // Merges runs of 1, 2, 4, ...: std::stable_sort has no use for a comparison that fails.
  for (size_t width = 1; width < from.size(); width *= 2) {
    for (size_t begin = 0; begin < from.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, from.size());
      const size_t end = std::min(begin + 2 * width, from.size());
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          GANTRY_ASSIGN_OR_RETURN(take_right, Less(keys[from[right]], keys[from[left]], budget));
        }
        to[out] = take_right ? from[right++] : from[left++];
      }
    }
    std::swap(from, to);
  }
  if (order == SortOrder::kDescending) std::reverse(from.begin(), from.end());
  std::vector<Value> sorted;
  for (const size_t i : from) sorted.push_back(items[i]);
  return sorted;
}

}  // namespace gantry
