#include "trainer/chat_template/test_functions.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "trainer/chat_template/arguments.h"
#include "trainer/chat_template/filters.h"
#include "trainer/chat_template/operators.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/text_format.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_comparison.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {
namespace {

using Kind = Value::Kind;

absl::Status TakesNothing(const Arguments& arguments) {
  return BoundArguments::Bind(arguments, {.function = "test", .names = {}}).status();
}

absl::StatusOr<Value> TakesOne(const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "test", .names = {"other"}, .required = 1}));
  return bound[0];
}

// Tests of the kind alone.
template <bool (*kTest)(const Value&)>
absl::StatusOr<bool> OfKind(RenderState&, const Value& value, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing(arguments));
  return kTest(value);
}

bool IsDefined(const Value& value) { return !value.Is(Kind::kUndefined); }
bool IsUndefined(const Value& value) { return value.Is(Kind::kUndefined); }
bool IsNone(const Value& value) { return value.Is(Kind::kNone); }
bool IsBoolean(const Value& value) { return value.Is(Kind::kBool); }
bool IsTrue(const Value& value) { return IsBoolean(value) && value.boolean(); }
bool IsFalse(const Value& value) { return IsBoolean(value) && !value.boolean(); }
bool IsInteger(const Value& value) { return value.Is(Kind::kInteger); }
bool IsFloat(const Value& value) { return value.Is(Kind::kFloat); }
bool IsString(const Value& value) { return value.Is(Kind::kString); }
bool IsMapping(const Value& value) { return value.Is(Kind::kDict); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsEscaped(const Value&) { return false; }
bool IsSequence(const Value& value) {
  return value.Is(Kind::kString) || value.is_list_or_tuple() || value.Is(Kind::kDict) ||
         value.Is(Kind::kRange) || value.Is(Kind::kUndefined);
}
bool IsIterable(const Value& value) {
  return IsSequence(value) || value.is_dict_view() || value.Is(Kind::kIterator);
}
bool IsCallable(const Value& value) {
  return value.Is(Kind::kUndefined) || (value.Is(Kind::kObject) && value.object()->callable());
}

template <Casing kCasing>
absl::StatusOr<bool> IsCasing(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing(arguments));
  GANTRY_ASSIGN_OR_RETURN(const std::string text, ToText(value, state.budget()));
  return HasCasing(text, kCasing);
}

absl::StatusOr<bool> RemainderIs(const Value& value, const Value& divisor, int64_t remainder,
                                 RenderState& state) {
  GANTRY_ASSIGN_OR_RETURN(const Value rest, Calculate("%", value, divisor, state.budget()));
  return Equal(rest, Value::Integer(remainder), state.budget());
}

absl::StatusOr<bool> IsOdd(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing(arguments));
  return RemainderIs(value, Value::Integer(2), 1, state);
}

absl::StatusOr<bool> IsEven(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing(arguments));
  return RemainderIs(value, Value::Integer(2), 0, state);
}

absl::StatusOr<bool> IsDivisibleBy(RenderState& state, const Value& value,
                                   const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments,
                           {.function = "divisibleby", .names = {"num"}, .required = 1}));
  return RemainderIs(value, bound[0], 0, state);
}

absl::StatusOr<bool> IsSameAs(RenderState&, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(const Value other, TakesOne(arguments));
  return value.SameAs(other);
}

absl::StatusOr<bool> IsIn(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(const Value other, TakesOne(arguments));
  return Contains(other, value, state.budget());
}

absl::StatusOr<bool> IsFilter(RenderState&, const Value& value, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing(arguments));
  return value.Is(Kind::kString) && FindFilter(value.string()) != nullptr;
}

absl::StatusOr<bool> IsTest(RenderState&, const Value& value, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(TakesNothing(arguments));
  return value.Is(Kind::kString) && FindTest(value.string()) != nullptr;
}

enum class Comparison : uint8_t {
  kEqual,
  kUnequal,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual
};

constexpr std::string_view kComparisons[] = {"==", "!=", "<", "<=", ">", ">="};

template <Comparison kComparison>
absl::StatusOr<bool> Compares(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(const Value other, TakesOne(arguments));
  return Compare(kComparisons[static_cast<size_t>(kComparison)], value, other, state.budget());
}

struct NamedTest {
  std::string_view name;
  TestFunction function;
};

constexpr NamedTest kTests[] = {
    {"odd", &IsOdd},
    {"even", &IsEven},
    {"divisibleby", &IsDivisibleBy},
    {"defined", &OfKind<IsDefined>},
    {"undefined", &OfKind<IsUndefined>},
    {"filter", &IsFilter},
    {"test", &IsTest},
    {"none", &OfKind<IsNone>},
    {"boolean", &OfKind<IsBoolean>},
    {"false", &OfKind<IsFalse>},
    {"true", &OfKind<IsTrue>},
    {"integer", &OfKind<IsInteger>},
    {"float", &OfKind<IsFloat>},
    {"lower", &IsCasing<Casing::kLower>},
    {"upper", &IsCasing<Casing::kUpper>},
    {"string", &OfKind<IsString>},
    {"mapping", &OfKind<IsMapping>},
    {"number", &OfKind<IsNumber>},
    {"sequence", &OfKind<IsSequence>},
    {"iterable", &OfKind<IsIterable>},
    {"callable", &OfKind<IsCallable>},
    {"sameas", &IsSameAs},
    {"escaped", &OfKind<IsEscaped>},
    {"in", &IsIn},
    {"==", &Compares<Comparison::kEqual>},
    {"eq", &Compares<Comparison::kEqual>},
    {"equalto", &Compares<Comparison::kEqual>},
    {"!=", &Compares<Comparison::kUnequal>},
    {"ne", &Compares<Comparison::kUnequal>},
    {">", &Compares<Comparison::kGreater>},
    {"gt", &Compares<Comparison::kGreater>},
    {"greaterthan", &Compares<Comparison::kGreater>},
    {"ge", &Compares<Comparison::kGreaterOrEqual>},
    {">=", &Compares<Comparison::kGreaterOrEqual>},
    {"<", &Compares<Comparison::kLess>},
    {"lt", &Compares<Comparison::kLess>},
    {"lessthan", &Compares<Comparison::kLess>},
    {"<=", &Compares<Comparison::kLessOrEqual>},
    {"le", &Compares<Comparison::kLessOrEqual>},
};

}  // namespace

TestFunction FindTest(std::string_view name) {
  for (const NamedTest& test : kTests) {
    if (test.name == name) return test.function;
  }
  return nullptr;
}

}  // namespace gantry
