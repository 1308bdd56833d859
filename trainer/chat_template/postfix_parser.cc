// The part of ExpressionParser that reads what follows a primary: .name, [index], (call), |filter,
// is test.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/expression_parser.h"
#include "trainer/chat_template/filters.h"
#include "trainer/chat_template/lexer.h"
#include "trainer/chat_template/syntax.h"
#include "trainer/chat_template/test_functions.h"
#include "trainer/chat_template/value.h"

namespace gantry {
namespace {

using Kind = Expression::Kind;
using Token = TemplateToken::Kind;

ExpressionPointer MakeOver(Kind kind, TemplatePosition at, ExpressionPointer operand) {
  auto node = std::make_unique<Expression>(Expression{.kind = kind, .at = at});
  node->operands.push_back(std::move(operand));
  return node;
}

}  // namespace

absl::StatusOr<ExpressionPointer> ExpressionParser::ParsePostfix(ExpressionPointer node) {
  while (true) {
    if (AtOperator(".") || AtOperator("[")) {
      GANTRY_ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
    } else if (AtOperator("(")) {
      GANTRY_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseFilterPostfix(ExpressionPointer node) {
  while (true) {
    if (SkipOperator("|")) {
      GANTRY_ASSIGN_OR_RETURN(node, ParseFilters(std::move(node)));
    } else if (AtName("is")) {
      GANTRY_ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (AtOperator("(")) {
      GANTRY_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseSubscript(ExpressionPointer node) {
  const TemplateToken open = Take();
  if (open.text == "[") return ParseIndex(std::move(node), open.at);
  if (At(Token::kName)) {
    node = MakeOver(Kind::kAttribute, open.at, std::move(node));
    node->name = Take().text;
    return Finish(std::move(node));
  }
  if (!At(Token::kInteger)) return Unexpected("a name or a number");
  node = MakeOver(Kind::kItem, open.at, std::move(node));
  const TemplateToken number = Take();
  auto index = std::make_unique<Expression>(Expression{.kind = Kind::kConstant, .at = number.at});
  index->constant = Value::Integer(number.integer);
  node->operands.push_back(std::move(index));
  return Finish(std::move(node));
}

// [index], [a, b] or [start:stop:step].
absl::StatusOr<ExpressionPointer> ExpressionParser::ParseIndex(ExpressionPointer node,
                                                               TemplatePosition at) {
  const auto part_ends = [&] { return AtOperator(":") || AtOperator("]"); };
  ExpressionPointer first;
  if (!AtOperator(":")) {
    GANTRY_ASSIGN_OR_RETURN(first, ParseExpression(Conditional::kYes));
  }
  if (!AtOperator(":")) {
    if (AtOperator(",")) {
      auto tuple = std::make_unique<Expression>(Expression{.kind = Kind::kTuple, .at = at});
      tuple->operands.push_back(std::move(first));
      while (SkipOperator(",")) {
        GANTRY_ASSIGN_OR_RETURN(ExpressionPointer item, ParseExpression(Conditional::kYes));
        tuple->operands.push_back(std::move(item));
      }
      GANTRY_ASSIGN_OR_RETURN(first, Finish(std::move(tuple)));
    }
    GANTRY_RETURN_IF_ERROR(ExpectOperator("]"));
    node = MakeOver(Kind::kItem, at, std::move(node));
    node->operands.push_back(std::move(first));
    return Finish(std::move(node));
  }
  node = MakeOver(Kind::kSlice, at, std::move(node));
  node->operands.push_back(std::move(first));
  for (int i = 0; i < 2; ++i) {
    ExpressionPointer part;
    if (SkipOperator(":") && !part_ends()) {
      GANTRY_ASSIGN_OR_RETURN(part, ParseExpression(Conditional::kYes));
    }
    node->operands.push_back(std::move(part));
  }
  GANTRY_RETURN_IF_ERROR(ExpectOperator("]"));
  return Finish(std::move(node));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseCall(ExpressionPointer node) {
  node = MakeOver(Kind::kCall, current().at, std::move(node));
  GANTRY_RETURN_IF_ERROR(ParseArguments(*node));
  return Finish(std::move(node));
}

absl::Status ExpressionParser::ParseArguments(Expression& node) {
  GANTRY_RETURN_IF_ERROR(ExpectOperator("("));
  bool first = true;
  while (!AtOperator(")")) {
    if (!first) {
      GANTRY_RETURN_IF_ERROR(ExpectOperator(","));
      if (AtOperator(")")) break;
    }
    first = false;
    GANTRY_RETURN_IF_ERROR(ParseArgument(node.call));
  }
  return ExpectOperator(")");
}

absl::Status ExpressionParser::ParseArgument(CallSyntax& call) {
  const TemplatePosition at = current().at;
  const auto misplaced = [&] {
    return TemplateError(at, "this argument may not stand behind those before it");
  };
  if (SkipOperator("*")) {
    if (call.spread != nullptr || call.spread_named != nullptr) return misplaced();
    GANTRY_ASSIGN_OR_RETURN(call.spread, ParseExpression(Conditional::kYes));
    return absl::OkStatus();
  }
  if (SkipOperator("**")) {
    if (call.spread_named != nullptr) return misplaced();
    GANTRY_ASSIGN_OR_RETURN(call.spread_named, ParseExpression(Conditional::kYes));
    return absl::OkStatus();
  }
  const TemplateToken& next = tokens_[next_ + 1];
  if (At(Token::kName) && next.kind == Token::kOperator && next.text == "=") {
    if (call.spread_named != nullptr) return misplaced();
    const std::string name = Take().text;
    Take();
    for (const auto& [known, value] : call.named) {
      if (known == name) return TemplateError(at, "the argument '", name, "' comes twice");
    }
    GANTRY_ASSIGN_OR_RETURN(ExpressionPointer value, ParseExpression(Conditional::kYes));
    call.named.emplace_back(name, std::move(value));
    return absl::OkStatus();
  }
  if (call.spread != nullptr || call.spread_named != nullptr || !call.named.empty()) {
    return misplaced();
  }
  GANTRY_ASSIGN_OR_RETURN(ExpressionPointer value, ParseExpression(Conditional::kYes));
  call.positional.push_back(std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ExpressionParser::ParseDottedName() {
  GANTRY_ASSIGN_OR_RETURN(TemplateToken token, Expect(Token::kName, "a name"));
  while (SkipOperator(".")) {
    GANTRY_ASSIGN_OR_RETURN(const TemplateToken part, Expect(Token::kName, "a name"));
    token.text += "." + part.text;
  }
  return token.text;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseFilters(ExpressionPointer input) {
  do {
    ExpressionPointer node = MakeOver(Kind::kFilter, current().at, std::move(input));
    GANTRY_ASSIGN_OR_RETURN(node->name, ParseDottedName());
    if (FindFilter(node->name) == nullptr) {
      unknown_names_.push_back(
          {.error = TemplateError(node->at, "no filter named '", node->name, "'")});
    }
    if (AtOperator("(")) GANTRY_RETURN_IF_ERROR(ParseArguments(*node));
    GANTRY_ASSIGN_OR_RETURN(input, Finish(std::move(node)));
  } while (SkipOperator("|"));
  return input;
}

bool ExpressionParser::BeginsTestArgument() const {
  if (At(Token::kString) || At(Token::kInteger) || At(Token::kFloat)) return true;
  if (AtOperator("[") || AtOperator("{")) return true;
  return At(Token::kName) && !AtName("else") && !AtName("or") && !AtName("and");
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseTest(ExpressionPointer node) {
  const TemplatePosition at = Take().at;
  const bool negated = SkipName("not");
  node = MakeOver(Kind::kTest, at, std::move(node));
  GANTRY_ASSIGN_OR_RETURN(node->name, ParseDottedName());
  if (FindTest(node->name) == nullptr) {
    unknown_names_.push_back({.error = TemplateError(at, "no test named '", node->name, "'")});
  }
  if (AtOperator("(")) {
    GANTRY_RETURN_IF_ERROR(ParseArguments(*node));
  } else if (BeginsTestArgument()) {
    if (AtName("is")) return TemplateError(current().at, "tests cannot be chained with 'is'");
    GANTRY_ASSIGN_OR_RETURN(ExpressionPointer argument, ParsePrimary());
    GANTRY_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    node->call.positional.push_back(std::move(argument));
  }
  GANTRY_ASSIGN_OR_RETURN(node, Finish(std::move(node)));
  if (!negated) return node;
  return Finish(MakeOver(Kind::kNot, at, std::move(node)));
}

}  // namespace gantry
