#include "trainer/chat_template/expression_parser.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/lexer.h"
#include "trainer/chat_template/syntax.h"
#include "trainer/chat_template/value.h"

namespace gantry {
namespace {

using Kind = Expression::Kind;
using Token = TemplateToken::Kind;

ExpressionPointer Make(Kind kind, TemplatePosition at) {
  return std::make_unique<Expression>(Expression{.kind = kind, .at = at});
}

ExpressionPointer MakeUnary(Kind kind, TemplatePosition at, ExpressionPointer operand) {
  ExpressionPointer node = Make(kind, at);
  node->operands.push_back(std::move(operand));
  return node;
}

ExpressionPointer MakeConstant(TemplatePosition at, Value value) {
  ExpressionPointer node = Make(Kind::kConstant, at);
  node->constant = std::move(value);
  return node;
}

std::string Describe(const TemplateToken& token) {
  switch (token.kind) {
    case Token::kText:
      return "text";
    case Token::kPrintBegin:
      return "'{{'";
    case Token::kPrintEnd:
      return "'}}'";
    case Token::kTagBegin:
      return "'{%'";
    case Token::kTagEnd:
      return "'%}'";
    case Token::kString:
      return "a string";
    case Token::kInteger:
      return "an integer";
    case Token::kFloat:
      return "a float";
    case Token::kEnd:
      return "the end of the template";
    default:
      return StrCat("'", token.text, "'");
  }
}

}  // namespace

bool ExpressionParser::AtName(std::string_view name) const {
  return At(Token::kName) && current().text == name;
}

bool ExpressionParser::AtOperator(std::string_view text) const {
  return At(Token::kOperator) && current().text == text;
}

TemplateToken ExpressionParser::Take() {
  const TemplateToken token = current();
  if (token.kind != Token::kEnd) ++next_;
  return token;
}

bool ExpressionParser::SkipName(std::string_view name) {
  if (!AtName(name)) return false;
  ++next_;
  return true;
}

bool ExpressionParser::SkipOperator(std::string_view text) {
  if (!AtOperator(text)) return false;
  ++next_;
  return true;
}

absl::Status ExpressionParser::Unexpected(std::string_view expected) const {
  return TemplateError(current().at, "expected ", expected, ", got ", Describe(current()));
}

absl::StatusOr<TemplateToken> ExpressionParser::Expect(Token kind, std::string_view what) {
  if (!At(kind)) return Unexpected(what);
  return Take();
}

absl::Status ExpressionParser::ExpectOperator(std::string_view text) {
  return SkipOperator(text) ? absl::OkStatus() : Unexpected(StrCat("'", text, "'"));
}

void ExpressionParser::ForgetUnknownSince(size_t count) {
  const auto begin = unknown_names_.begin() + static_cast<std::ptrdiff_t>(count);
  unknown_names_.erase(std::remove_if(begin, unknown_names_.end(),
                                      [](const UnknownName& name) { return !name.firm; }),
                       unknown_names_.end());
}

void ExpressionParser::ConfirmUnknownSince(size_t count) {
  for (size_t i = count; i < unknown_names_.size(); ++i) unknown_names_[i].firm = true;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::Finish(ExpressionPointer node) const {
  int depth = 0;
  const auto include = [&](const ExpressionPointer& child) {
    if (child != nullptr) depth = std::max(depth, child->depth);
  };
  for (const ExpressionPointer& operand : node->operands) include(operand);
  for (const ExpressionPointer& argument : node->call.positional) include(argument);
  for (const auto& [name, argument] : node->call.named) include(argument);
  include(node->call.spread);
  include(node->call.spread_named);
  node->depth = depth + 1;
  if (node->depth <= kExpressionDepthMax) return node;
  return TemplateError(node->at, "this expression is more than ", kExpressionDepthMax,
                       " levels deep");
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseExpression(Conditional conditional) {
  if (nesting_ == kExpressionDepthMax) {
    return TemplateError(current().at, "expressions nest more than ", kExpressionDepthMax,
                         " levels deep");
  }
  ++nesting_;
  absl::StatusOr<ExpressionPointer> node =
      conditional == Conditional::kYes ? ParseConditional() : ParseOr();
  --nesting_;
  return node;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseConditional() {
  const size_t unknown = unknown_names_.size();
  const TemplatePosition at = current().at;
  GANTRY_ASSIGN_OR_RETURN(ExpressionPointer node, ParseOr());
  while (SkipName("if")) {
    ExpressionPointer conditional = Make(Kind::kConditional, at);
    conditional->operands.push_back(std::move(node));
    GANTRY_ASSIGN_OR_RETURN(ExpressionPointer test, ParseOr());
    conditional->operands.push_back(std::move(test));
    ExpressionPointer otherwise;
    if (SkipName("else")) {
      GANTRY_ASSIGN_OR_RETURN(otherwise, ParseExpression(Conditional::kYes));
    }
    conditional->operands.push_back(std::move(otherwise));
    GANTRY_ASSIGN_OR_RETURN(node, Finish(std::move(conditional)));
    ForgetUnknownSince(unknown);
  }
  return node;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseLogical(Level next, std::string_view name,
                                                                 Kind kind) {
  GANTRY_ASSIGN_OR_RETURN(ExpressionPointer left, (this->*next)());
  while (AtName(name)) {
    ExpressionPointer node = Make(kind, Take().at);
    node->operands.push_back(std::move(left));
    GANTRY_ASSIGN_OR_RETURN(ExpressionPointer right, (this->*next)());
    node->operands.push_back(std::move(right));
    GANTRY_ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseOr() {
  return ParseLogical(&ExpressionParser::ParseAnd, "or", Kind::kOr);
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseAnd() {
  return ParseLogical(&ExpressionParser::ParseNot, "and", Kind::kAnd);
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseNot() {
  std::vector<TemplatePosition> nots;
  while (AtName("not")) nots.push_back(Take().at);
  GANTRY_ASSIGN_OR_RETURN(ExpressionPointer node, ParseCompare());
  for (; !nots.empty(); nots.pop_back()) {
    GANTRY_ASSIGN_OR_RETURN(node, Finish(MakeUnary(Kind::kNot, nots.back(), std::move(node))));
  }
  return node;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseCompare() {
  const TemplatePosition at = current().at;
  GANTRY_ASSIGN_OR_RETURN(ExpressionPointer first, ParseSum());
  ExpressionPointer node = MakeUnary(Kind::kCompare, at, std::move(first));
  while (true) {
    std::string comparison;
    if (At(Token::kOperator) &&
        (current().text == "==" || current().text == "!=" || current().text == "<" ||
         current().text == "<=" || current().text == ">" || current().text == ">=")) {
      comparison = Take().text;
    } else if (SkipName("in")) {
      comparison = "in";
    } else if (AtName("not") && tokens_[next_ + 1].kind == Token::kName &&
               tokens_[next_ + 1].text == "in") {
      next_ += 2;
      comparison = "not in";
    } else {
      break;
    }
    GANTRY_ASSIGN_OR_RETURN(ExpressionPointer operand, ParseSum());
    node->operators.push_back(std::move(comparison));
    node->operands.push_back(std::move(operand));
  }
  if (node->operators.empty()) return std::move(node->operands[0]);
  return Finish(std::move(node));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseBinary(
    Level next, std::initializer_list<std::string_view> operators) {
  GANTRY_ASSIGN_OR_RETURN(ExpressionPointer left, (this->*next)());
  while (At(Token::kOperator) &&
         std::find(operators.begin(), operators.end(), current().text) != operators.end()) {
    const TemplateToken token = Take();
    ExpressionPointer node = MakeUnary(Kind::kBinary, token.at, std::move(left));
    node->name = token.text;
    GANTRY_ASSIGN_OR_RETURN(ExpressionPointer right, (this->*next)());
    node->operands.push_back(std::move(right));
    GANTRY_ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseSum() {
  return ParseBinary(&ExpressionParser::ParseConcatenation, {"+", "-"});
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseConcatenation() {
  const TemplatePosition at = current().at;
  GANTRY_ASSIGN_OR_RETURN(ExpressionPointer first, ParseProduct());
  if (!AtOperator("~")) return first;
  ExpressionPointer node = MakeUnary(Kind::kConcatenate, at, std::move(first));
  while (SkipOperator("~")) {
    GANTRY_ASSIGN_OR_RETURN(ExpressionPointer operand, ParseProduct());
    node->operands.push_back(std::move(operand));
  }
  return Finish(std::move(node));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseProduct() {
  return ParseBinary(&ExpressionParser::ParsePower, {"*", "/", "//", "%"});
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParsePower() {
  return ParseBinary(&ExpressionParser::ParseUnary, {"**"});
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseUnary() {
  GANTRY_ASSIGN_OR_RETURN(ExpressionPointer node, ParseSigned());
  return ParseFilterPostfix(std::move(node));
}

// A primary with its signs; what follows a primary binds to the signed one, as in Jinja.
absl::StatusOr<ExpressionPointer> ExpressionParser::ParseSigned() {
  std::vector<TemplateToken> signs;
  while (AtOperator("-") || AtOperator("+")) signs.push_back(Take());
  GANTRY_ASSIGN_OR_RETURN(ExpressionPointer node, ParsePrimary());
  GANTRY_ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  for (; !signs.empty(); signs.pop_back()) {
    const Kind kind = signs.back().text == "-" ? Kind::kNegative : Kind::kPositive;
    GANTRY_ASSIGN_OR_RETURN(node, Finish(MakeUnary(kind, signs.back().at, std::move(node))));
    GANTRY_ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  }
  return node;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParsePrimary() {
  const TemplateToken& token = current();
  switch (token.kind) {
    case Token::kName:
      return ParseName();
    case Token::kString:
      return ParseString();
    case Token::kInteger:
      return MakeConstant(token.at, Value::Integer(Take().integer));
    case Token::kFloat:
      return MakeConstant(token.at, Value::Float(Take().floating));
    case Token::kOperator:
      if (token.text == "[") return ParseList();
      if (token.text == "{") return ParseDict();
      if (token.text == "(") {
        Take();
        GANTRY_ASSIGN_OR_RETURN(ExpressionPointer node, ParseTuple({.in_parentheses = true}));
        GANTRY_RETURN_IF_ERROR(ExpectOperator(")"));
        return node;
      }
      break;
    default:
      break;
  }
  return Unexpected("an expression");
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseName() {
  const TemplateToken token = Take();
  if (token.text == "true" || token.text == "True") {
    return MakeConstant(token.at, Value::Bool(true));
  }
  if (token.text == "false" || token.text == "False") {
    return MakeConstant(token.at, Value::Bool(false));
  }
  if (token.text == "none" || token.text == "None") return MakeConstant(token.at, Value());
  special_names_.caller |= token.text == "caller";
  special_names_.kwargs |= token.text == "kwargs";
  special_names_.varargs |= token.text == "varargs";
  ExpressionPointer node = Make(Kind::kName, token.at);
  node->name = token.text;
  return node;
}

// Strings that stand side by side are one.
absl::StatusOr<ExpressionPointer> ExpressionParser::ParseString() {
  const TemplatePosition at = current().at;
  std::string text;
  while (At(Token::kString)) text += Take().text;
  return MakeConstant(at, Value::String(text));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseTuple(const TupleOptions& options) {
  const auto at_end = [&] {
    return At(Token::kPrintEnd) || At(Token::kTagEnd) || AtOperator(")") ||
           (!options.end_name.empty() && AtName(options.end_name));
  };
  ExpressionPointer tuple = Make(Kind::kTuple, current().at);
  bool is_tuple = false;
  while (true) {
    if (!tuple->operands.empty()) GANTRY_RETURN_IF_ERROR(ExpectOperator(","));
    if (at_end()) break;
    GANTRY_ASSIGN_OR_RETURN(ExpressionPointer item, ParseExpression(options.conditional));
    tuple->operands.push_back(std::move(item));
    if (!AtOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !tuple->operands.empty()) return std::move(tuple->operands[0]);
  if (!is_tuple && !options.in_parentheses) return Unexpected("an expression");
  return Finish(std::move(tuple));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseList() {
  ExpressionPointer node = Make(Kind::kList, Take().at);
  while (!AtOperator("]")) {
    if (!node->operands.empty()) GANTRY_RETURN_IF_ERROR(ExpectOperator(","));
    if (AtOperator("]")) break;
    GANTRY_ASSIGN_OR_RETURN(ExpressionPointer item, ParseExpression(Conditional::kYes));
    node->operands.push_back(std::move(item));
  }
  GANTRY_RETURN_IF_ERROR(ExpectOperator("]"));
  return Finish(std::move(node));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseDict() {
  ExpressionPointer node = Make(Kind::kDict, Take().at);
  while (!AtOperator("}")) {
    if (!node->operands.empty()) GANTRY_RETURN_IF_ERROR(ExpectOperator(","));
    if (AtOperator("}")) break;
    GANTRY_ASSIGN_OR_RETURN(ExpressionPointer key, ParseExpression(Conditional::kYes));
    GANTRY_RETURN_IF_ERROR(ExpectOperator(":"));
    GANTRY_ASSIGN_OR_RETURN(ExpressionPointer value, ParseExpression(Conditional::kYes));
    node->operands.push_back(std::move(key));
    node->operands.push_back(std::move(value));
  }
  GANTRY_RETURN_IF_ERROR(ExpectOperator("}"));
  return Finish(std::move(node));
}

}  // namespace gantry
