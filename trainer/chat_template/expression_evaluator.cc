// The part of Renderer that evaluates expressions.
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/arguments.h"
#include "trainer/chat_template/attributes.h"
#include "trainer/chat_template/depth_guard.h"
#include "trainer/chat_template/filters.h"
#include "trainer/chat_template/functions.h"
#include "trainer/chat_template/lexer.h"
#include "trainer/chat_template/operators.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/renderer.h"
#include "trainer/chat_template/syntax.h"
#include "trainer/chat_template/test_functions.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_comparison.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {

using Kind = Expression::Kind;

absl::StatusOr<Value> Renderer::Evaluate(const Expression& node) {
  const DepthGuard guard(depth_);
  if (depth_ > kRenderDepthMax) {
    return Located(node.at, ResourceExhausted("calls and expressions nest more than ",
                                              kRenderDepthMax, " levels deep"));
  }
  GANTRY_RETURN_IF_ERROR(Located(node.at, state_.budget().Spend(1)));
  switch (node.kind) {
    case Kind::kConstant:
      return node.constant;
    case Kind::kName:
      return EvaluateName(node);
    case Kind::kTuple:
    case Kind::kList:
      return EvaluateItems(node);
    case Kind::kDict:
      return EvaluateDict(node);
    case Kind::kAttribute:
    case Kind::kItem:
    case Kind::kSlice:
      return EvaluateAccess(node);
    case Kind::kCall:
      return EvaluateCall(node, nullptr);
    case Kind::kFilter:
      return EvaluateFilter(node, nullptr);
    case Kind::kTest:
      return EvaluateTest(node);
    case Kind::kNegative:
    case Kind::kPositive:
    case Kind::kNot:
      return EvaluateUnary(node);
    case Kind::kAnd:
    case Kind::kOr:
      return EvaluateLogical(node);
    case Kind::kBinary:
      return EvaluateBinary(node);
    case Kind::kConcatenate:
      return EvaluateConcatenation(node);
    case Kind::kCompare:
      return EvaluateCompare(node);
    case Kind::kConditional:
      return EvaluateConditional(node);
  }
  return Value();
}

absl::StatusOr<Value> Renderer::EvaluateOrNone(const ExpressionPointer& node) {
  return node == nullptr ? Value() : Evaluate(*node);
}

absl::StatusOr<Value> Renderer::EvaluateName(const Expression& node) {
  const Value* found = scope_->Find(node.name);
  if (found != nullptr) return *found;
  GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> global,
                          Located(node.at, FindGlobal(state_, node.name)));
  if (global.has_value()) return *global;
  return Value::Undefined(StrCat("'", node.name, "' is undefined"));
}

absl::StatusOr<Value> Renderer::EvaluateItems(const Expression& node) {
  std::vector<Value> items;
  items.reserve(node.operands.size());
  for (const ExpressionPointer& operand : node.operands) {
    GANTRY_ASSIGN_OR_RETURN(Value item, Evaluate(*operand));
    items.push_back(std::move(item));
  }
  return Located(node.at, Shallow(node.kind == Kind::kList ? Value::List(std::move(items))
                                                           : Value::Tuple(std::move(items))));
}

absl::StatusOr<Value> Renderer::EvaluateDict(const Expression& node) {
  Value::Entries entries;
  for (size_t i = 0; i < node.operands.size(); i += 2) {
    GANTRY_ASSIGN_OR_RETURN(const Value key, Evaluate(*node.operands[i]));
    GANTRY_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.operands[i + 1]));
    GANTRY_RETURN_IF_ERROR(
        Located(node.operands[i]->at, SetKey(entries, key, value, state_.budget())));
  }
  return Located(node.at, Shallow(Value::Dict(std::move(entries))));
}

absl::StatusOr<Value> Renderer::EvaluateAccess(const Expression& node) {
  GANTRY_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.operands[0]));
  if (node.kind == Kind::kAttribute) {
    return Located(node.at, GetAttribute(state_, value, node.name));
  }
  if (node.kind == Kind::kItem) {
    GANTRY_ASSIGN_OR_RETURN(const Value key, Evaluate(*node.operands[1]));
    return Located(node.at, GetItem(state_, value, key));
  }
  GANTRY_ASSIGN_OR_RETURN(const Value start, EvaluateOrNone(node.operands[1]));
  GANTRY_ASSIGN_OR_RETURN(const Value stop, EvaluateOrNone(node.operands[2]));
  GANTRY_ASSIGN_OR_RETURN(const Value step, EvaluateOrNone(node.operands[3]));
  return Located(node.at, GetSlice(state_, value, {.start = start, .stop = stop, .step = step}));
}

absl::StatusOr<Arguments> Renderer::EvaluateArguments(const CallSyntax& call, TemplatePosition at) {
  Arguments arguments;
  for (const ExpressionPointer& argument : call.positional) {
    GANTRY_ASSIGN_OR_RETURN(Value value, Evaluate(*argument));
    arguments.positional.push_back(std::move(value));
  }
  if (call.spread != nullptr) {
    GANTRY_ASSIGN_OR_RETURN(const Value spread, Evaluate(*call.spread));
    GANTRY_ASSIGN_OR_RETURN(const std::vector<Value> items,
                            Located(at, ToItems(spread, state_.budget())));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  for (const auto& [name, argument] : call.named) {
    GANTRY_ASSIGN_OR_RETURN(Value value, Evaluate(*argument));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (call.spread_named == nullptr) return arguments;
  GANTRY_ASSIGN_OR_RETURN(const Value spread, Evaluate(*call.spread_named));
  if (!spread.Is(Value::Kind::kDict)) {
    return Located(at, InvalidArgument("what follows ** must be a mapping"));
  }
  for (const auto& [name, value] : spread.entries()) {
    GANTRY_ASSIGN_OR_RETURN(std::string text, Located(at, TextOf(name)));
    for (const auto& [known, before] : arguments.named) {
      if (known == text) return Located(at, InvalidArgument("the argument '", text, "' twice"));
    }
    arguments.named.emplace_back(std::move(text), value);
  }
  return arguments;
}

absl::StatusOr<Value> Renderer::EvaluateCall(const Expression& node, const Value* caller) {
  GANTRY_ASSIGN_OR_RETURN(const Value callee, Evaluate(*node.operands[0]));
  GANTRY_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(node.call, node.at));
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  return Located(node.at, CallValue(state_, callee, arguments));
}

absl::StatusOr<Value> Renderer::EvaluateFilter(const Expression& node, const Value* input) {
  Value value;
  if (node.operands[0] == nullptr) {
    value = *input;
  } else if (input != nullptr) {
    GANTRY_ASSIGN_OR_RETURN(value, EvaluateFilter(*node.operands[0], input));
  } else {
    GANTRY_ASSIGN_OR_RETURN(value, Evaluate(*node.operands[0]));
  }
  GANTRY_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node.call, node.at));
  const FilterFunction filter = FindFilter(node.name);
  if (filter == nullptr) {
    return Located(node.at, InvalidArgument("no filter named '", node.name, "'"));
  }
  return Located(node.at, filter(state_, value, arguments));
}

absl::StatusOr<Value> Renderer::ApplyFilters(const Expression& filters, const Value& input) {
  return EvaluateFilter(filters, &input);
}

absl::StatusOr<Value> Renderer::EvaluateTest(const Expression& node) {
  GANTRY_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.operands[0]));
  GANTRY_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node.call, node.at));
  const TestFunction test = FindTest(node.name);
  if (test == nullptr) {
    return Located(node.at, InvalidArgument("no test named '", node.name, "'"));
  }
  GANTRY_ASSIGN_OR_RETURN(const bool passes, Located(node.at, test(state_, value, arguments)));
  return Value::Bool(passes);
}

absl::StatusOr<Value> Renderer::EvaluateUnary(const Expression& node) {
  GANTRY_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.operands[0]));
  if (node.kind == Kind::kNot) return Value::Bool(!Truth(value));
  return Located(node.at, node.kind == Kind::kNegative ? Negate(value) : Positive(value));
}

absl::StatusOr<Value> Renderer::EvaluateLogical(const Expression& node) {
  GANTRY_ASSIGN_OR_RETURN(Value left, Evaluate(*node.operands[0]));
  if (Truth(left) == (node.kind == Kind::kOr)) return left;
  return Evaluate(*node.operands[1]);
}

absl::StatusOr<Value> Renderer::EvaluateBinary(const Expression& node) {
  GANTRY_ASSIGN_OR_RETURN(const Value left, Evaluate(*node.operands[0]));
  GANTRY_ASSIGN_OR_RETURN(const Value right, Evaluate(*node.operands[1]));
  return Located(node.at, Calculate(node.name, left, right, state_.budget()));
}

absl::StatusOr<Value> Renderer::EvaluateConcatenation(const Expression& node) {
  std::string out;
  for (const ExpressionPointer& operand : node.operands) {
    GANTRY_ASSIGN_OR_RETURN(const Value value, Evaluate(*operand));
    GANTRY_ASSIGN_OR_RETURN(const std::string text,
                            Located(node.at, ToText(value, state_.budget())));
    out += text;
    GANTRY_RETURN_IF_ERROR(Located(node.at, state_.budget().CheckText(out.size())));
  }
  return Value::String(out);
}

absl::StatusOr<Value> Renderer::EvaluateCompare(const Expression& node) {
  GANTRY_ASSIGN_OR_RETURN(Value left, Evaluate(*node.operands[0]));
  for (size_t i = 0; i < node.operators.size(); ++i) {
    GANTRY_ASSIGN_OR_RETURN(Value right, Evaluate(*node.operands[i + 1]));
    GANTRY_ASSIGN_OR_RETURN(const bool holds, Located(node.at, Compare(node.operators[i], left,
                                                                       right, state_.budget())));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

absl::StatusOr<Value> Renderer::EvaluateConditional(const Expression& node) {
  GANTRY_ASSIGN_OR_RETURN(const Value test, Evaluate(*node.operands[1]));
  if (Truth(test)) return Evaluate(*node.operands[0]);
  if (node.operands[2] != nullptr) return Evaluate(*node.operands[2]);
  return Value::Undefined("the inline if-expression evaluated to false and has no else");
}

}  // namespace gantry
