#include "trainer/chat_template/parser.h"

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
#include "trainer/chat_template/expression_parser.h"
#include "trainer/chat_template/lexer.h"
#include "trainer/chat_template/name_scopes.h"
#include "trainer/chat_template/syntax.h"
#include "trainer/chat_template/value.h"

namespace gantry {
namespace {

using Kind = Statement::Kind;
using Token = TemplateToken::Kind;
using Conditional = ExpressionParser::Conditional;

class Parser {
 public:
  explicit Parser(std::vector<TemplateToken> tokens) : expressions_(std::move(tokens)) {}

  absl::StatusOr<TemplateSyntax> Run() {
    GANTRY_ASSIGN_OR_RETURN(syntax_.body, ParseBody({}));
    if (!expressions_.unknown_names().empty()) return expressions_.unknown_names()[0].error;
    FindHiddenNames(syntax_);
    return std::move(syntax_);
  }

 private:
  // What is around a body: which loops its break leaves, and how deep it is.
  enum class Frame : uint8_t { kSoft, kScope, kFunction };

  // Statements up to a tag whose name is one of `ends`, which is current afterwards; up to the end
  // of the template when there are none.
  absl::StatusOr<std::vector<Statement>> ParseBody(std::initializer_list<std::string_view> ends) {
    std::vector<Statement> body;
    while (!expressions_.At(Token::kEnd)) {
      const TemplateToken token = expressions_.Take();
      if (token.kind == Token::kText) {
        body.push_back({.kind = Kind::kText, .at = token.at, .text = token.text});
      } else if (token.kind == Token::kPrintBegin) {
        Statement print{.kind = Kind::kPrint, .at = token.at};
        GANTRY_ASSIGN_OR_RETURN(ExpressionPointer expression, expressions_.ParseTuple({}));
        print.expressions.push_back(std::move(expression));
        if (!expressions_.At(Token::kPrintEnd)) return expressions_.Unexpected("'}}'");
        expressions_.Take();
        body.push_back(std::move(print));
      } else {
        for (const std::string_view end : ends) {
          if (expressions_.AtName(end)) return body;
        }
        GANTRY_ASSIGN_OR_RETURN(Statement statement, ParseTag());
        body.push_back(std::move(statement));
        GANTRY_RETURN_IF_ERROR(EndTag());
      }
    }
    if (ends.size() == 0) return body;
    return expressions_.Unexpected(StrCat("'{% ", *(ends.end() - 1), " %}'"));
  }

  absl::Status EndTag() { return expressions_.Expect(Token::kTagEnd, "'%}'").status(); }

  // Behind the head of a tag: the body that belongs to it.
  absl::StatusOr<std::vector<Statement>> ParseInner(std::initializer_list<std::string_view> ends,
                                                    Frame frame) {
    expressions_.SkipOperator(":");
    GANTRY_RETURN_IF_ERROR(EndTag());
    if (depth_ == kStatementDepthMax) {
      return TemplateError(expressions_.current().at, "tags nest more than ", kStatementDepthMax,
                           " levels deep");
    }
    const int loops = loops_;
    if (frame == Frame::kFunction) loops_ = 0;
    const size_t unknown = expressions_.unknown_names().size();
    ++depth_;
    absl::StatusOr<std::vector<Statement>> body = ParseBody(ends);
    --depth_;
    if (frame != Frame::kSoft) expressions_.ConfirmUnknownSince(unknown);
    loops_ = loops;
    return body;
  }

  // The same up to one end, which it takes.
  absl::Status ParseInnerTo(std::string_view end, Frame frame, Statement& statement) {
    GANTRY_ASSIGN_OR_RETURN(std::vector<Statement> body, ParseInner({end}, frame));
    expressions_.Take();
    statement.branches.push_back(std::move(body));
    return absl::OkStatus();
  }

  absl::StatusOr<Statement> ParseTag() {
    GANTRY_ASSIGN_OR_RETURN(const TemplateToken tag,
                            expressions_.Expect(Token::kName, "the name of a tag"));
    const std::string& name = tag.text;
    if (name == "if") return ParseIf(tag.at);
    if (name == "for") return ParseFor(tag.at);
    if (name == "set") return ParseSet(tag.at);
    if (name == "macro") return ParseMacro(tag.at);
    if (name == "call") return ParseCallBlock(tag.at);
    if (name == "filter") return ParseFilterBlock(tag.at);
    if (name == "with") return ParseWith(tag.at);
    if (name == "print") return ParsePrint(tag.at);
    if (name == "break" || name == "continue") return ParseJump(tag);
    if (name == "generation") {
      Statement statement{.kind = Kind::kGeneration, .at = tag.at};
      syntax_.has_generation = true;
      GANTRY_RETURN_IF_ERROR(ParseInnerTo("endgeneration", Frame::kFunction, statement));
      return statement;
    }
    return TemplateError(tag.at, "unknown tag '", name,
                         "'; chat templates have if, for, set, macro, call, filter, with, print, "
                         "break, continue, generation, raw");
  }

  absl::StatusOr<Statement> ParseIf(TemplatePosition at) {
    Statement statement{.kind = Kind::kIf, .at = at};
    const size_t unknown = expressions_.unknown_names().size();
    while (true) {
      GANTRY_ASSIGN_OR_RETURN(ExpressionPointer test,
                              expressions_.ParseTuple({.conditional = Conditional::kNo}));
      statement.expressions.push_back(std::move(test));
      GANTRY_ASSIGN_OR_RETURN(std::vector<Statement> body,
                              ParseInner({"elif", "else", "endif"}, Frame::kSoft));
      statement.branches.push_back(std::move(body));
      const TemplateToken tag = expressions_.Take();
      if (tag.text == "elif") continue;
      if (tag.text == "else") {
        GANTRY_RETURN_IF_ERROR(ParseInnerTo("endif", Frame::kSoft, statement));
      }
      expressions_.ForgetUnknownSince(unknown);
      return statement;
    }
  }

  absl::StatusOr<Statement> ParseFor(TemplatePosition at) {
    Statement statement{.kind = Kind::kFor, .at = at};
    GANTRY_ASSIGN_OR_RETURN(Target target, ParseTarget("in", Attributes::kNo));
    GANTRY_RETURN_IF_ERROR(CheckNotLoop(target));
    statement.targets.push_back(std::move(target));
    if (!expressions_.SkipName("in")) return expressions_.Unexpected("'in'");
    GANTRY_ASSIGN_OR_RETURN(
        ExpressionPointer iterable,
        expressions_.ParseTuple({.conditional = Conditional::kNo, .end_name = "recursive"}));
    statement.expressions.push_back(std::move(iterable));
    ExpressionPointer test;
    if (expressions_.SkipName("if")) {
      GANTRY_ASSIGN_OR_RETURN(test, expressions_.ParseExpression(Conditional::kYes));
    }
    statement.expressions.push_back(std::move(test));
    statement.recursive = expressions_.SkipName("recursive");
    ++loops_;
    absl::StatusOr<std::vector<Statement>> body = ParseInner({"else", "endfor"}, Frame::kScope);
    --loops_;
    GANTRY_RETURN_IF_ERROR(body.status());
    statement.branches.push_back(*std::move(body));
    if (expressions_.Take().text == "else") {
      GANTRY_RETURN_IF_ERROR(ParseInnerTo("endfor", Frame::kScope, statement));
    }
    return statement;
  }

  absl::StatusOr<Statement> ParseSet(TemplatePosition at) {
    Statement statement{.kind = Kind::kSet, .at = at};
    GANTRY_ASSIGN_OR_RETURN(Target target, ParseTarget("", Attributes::kYes));
    statement.targets.push_back(std::move(target));
    if (expressions_.SkipOperator("=")) {
      GANTRY_ASSIGN_OR_RETURN(ExpressionPointer value, expressions_.ParseTuple({}));
      statement.expressions.push_back(std::move(value));
      return statement;
    }
    statement.kind = Kind::kSetBlock;
    ExpressionPointer filter;
    if (expressions_.SkipOperator("|")) {
      GANTRY_ASSIGN_OR_RETURN(filter, expressions_.ParseFilters(nullptr));
    }
    statement.expressions.push_back(std::move(filter));
    GANTRY_RETURN_IF_ERROR(ParseInnerTo("endset", Frame::kScope, statement));
    return statement;
  }

  absl::StatusOr<Statement> ParseMacro(TemplatePosition at) {
    Statement statement{.kind = Kind::kMacro, .at = at};
    GANTRY_ASSIGN_OR_RETURN(const TemplateToken name,
                            expressions_.Expect(Token::kName, "the macro's name"));
    statement.macro = std::make_unique<MacroSyntax>();
    statement.macro->name = name.text;
    GANTRY_RETURN_IF_ERROR(ParseFunction("endmacro", at, Signature::kRequired, statement));
    return statement;
  }

  absl::StatusOr<Statement> ParseCallBlock(TemplatePosition at) {
    Statement statement{.kind = Kind::kCallBlock, .at = at};
    statement.macro = std::make_unique<MacroSyntax>();
    GANTRY_RETURN_IF_ERROR(ParseFunction("endcall", at, Signature::kWithCall, statement));
    return statement;
  }

  // The parameters and the body of a macro, or of a call block, which has the call between them.
  enum class Signature : uint8_t { kRequired, kWithCall };
  absl::Status ParseFunction(std::string_view end, TemplatePosition at, Signature signature,
                             Statement& statement) {
    MacroSyntax& macro = *statement.macro;
    macro.at = at;
    const ExpressionParser::SpecialNames outer =
        std::exchange(expressions_.special_names(), ExpressionParser::SpecialNames());
    if (signature == Signature::kRequired || expressions_.AtOperator("(")) {
      GANTRY_RETURN_IF_ERROR(ParseParameters(macro));
    }
    const ExpressionParser::SpecialNames inner = expressions_.special_names();
    if (signature == Signature::kWithCall) {
      // The call is no part of the function that it calls with.
      expressions_.special_names() = outer;
      const TemplatePosition call_at = expressions_.current().at;
      GANTRY_ASSIGN_OR_RETURN(ExpressionPointer call,
                              expressions_.ParseExpression(Conditional::kYes));
      if (call->kind != Expression::Kind::kCall) return TemplateError(call_at, "expected a call");
      statement.expressions.push_back(std::move(call));
    }
    const ExpressionParser::SpecialNames around =
        std::exchange(expressions_.special_names(), inner);
    GANTRY_ASSIGN_OR_RETURN(macro.body, ParseInner({end}, Frame::kFunction));
    expressions_.Take();
    ExpressionParser::SpecialNames& names = expressions_.special_names();
    macro.uses_caller = names.caller;
    macro.uses_named = names.kwargs;
    macro.uses_positional = names.varargs;
    const ExpressionParser::SpecialNames& before =
        signature == Signature::kWithCall ? around : outer;
    names.caller |= before.caller;
    names.kwargs |= before.kwargs;
    names.varargs |= before.varargs;
    return absl::OkStatus();
  }

  absl::Status ParseParameters(MacroSyntax& macro) {
    GANTRY_RETURN_IF_ERROR(expressions_.ExpectOperator("("));
    bool defaults = false;
    while (!expressions_.AtOperator(")")) {
      if (!macro.parameters.empty()) GANTRY_RETURN_IF_ERROR(expressions_.ExpectOperator(","));
      GANTRY_ASSIGN_OR_RETURN(const TemplateToken name,
                              expressions_.Expect(Token::kName, "a parameter's name"));
      for (const Parameter& known : macro.parameters) {
        if (known.name != name.text) continue;
        return TemplateError(name.at, "the parameter '", name.text, "' comes twice");
      }
      Parameter parameter{.name = name.text, .default_value = nullptr};
      if (expressions_.SkipOperator("=")) {
        GANTRY_ASSIGN_OR_RETURN(parameter.default_value,
                                expressions_.ParseExpression(Conditional::kYes));
        defaults = true;
      } else if (defaults) {
        return TemplateError(name.at, "a parameter without a default behind one that has one");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    expressions_.Take();
    return absl::OkStatus();
  }

  absl::StatusOr<Statement> ParseFilterBlock(TemplatePosition at) {
    Statement statement{.kind = Kind::kFilterBlock, .at = at};
    GANTRY_ASSIGN_OR_RETURN(ExpressionPointer filter, expressions_.ParseFilters(nullptr));
    statement.expressions.push_back(std::move(filter));
    GANTRY_RETURN_IF_ERROR(ParseInnerTo("endfilter", Frame::kScope, statement));
    return statement;
  }

  absl::StatusOr<Statement> ParseWith(TemplatePosition at) {
    Statement statement{.kind = Kind::kWith, .at = at};
    while (!expressions_.At(Token::kTagEnd)) {
      if (!statement.targets.empty()) GANTRY_RETURN_IF_ERROR(expressions_.ExpectOperator(","));
      GANTRY_ASSIGN_OR_RETURN(Target target, ParseTarget("", Attributes::kNo));
      statement.targets.push_back(std::move(target));
      GANTRY_RETURN_IF_ERROR(expressions_.ExpectOperator("="));
      GANTRY_ASSIGN_OR_RETURN(ExpressionPointer value,
                              expressions_.ParseExpression(Conditional::kYes));
      statement.expressions.push_back(std::move(value));
    }
    GANTRY_RETURN_IF_ERROR(ParseInnerTo("endwith", Frame::kScope, statement));
    return statement;
  }

  absl::StatusOr<Statement> ParsePrint(TemplatePosition at) {
    Statement statement{.kind = Kind::kPrint, .at = at};
    while (!expressions_.At(Token::kTagEnd)) {
      if (!statement.expressions.empty()) {
        GANTRY_RETURN_IF_ERROR(expressions_.ExpectOperator(","));
      }
      GANTRY_ASSIGN_OR_RETURN(ExpressionPointer value,
                              expressions_.ParseExpression(Conditional::kYes));
      statement.expressions.push_back(std::move(value));
    }
    return statement;
  }

  absl::StatusOr<Statement> ParseJump(const TemplateToken& tag) {
    if (loops_ == 0) return TemplateError(tag.at, "'", tag.text, "' outside of a loop");
    return Statement{.kind = tag.text == "break" ? Kind::kBreak : Kind::kContinue, .at = tag.at};
  }

  enum class Attributes : bool { kNo, kYes };  // whether ns.name may be assigned to

  // A name, or several with commas between them, up to the name `end` (or none).
  absl::StatusOr<Target> ParseTarget(std::string_view end, Attributes attributes) {
    Target tuple{.kind = Target::Kind::kTuple, .at = expressions_.current().at};
    bool is_tuple = false;
    while (true) {
      if (!tuple.items.empty()) GANTRY_RETURN_IF_ERROR(expressions_.ExpectOperator(","));
      if (expressions_.At(Token::kTagEnd) || (!end.empty() && expressions_.AtName(end))) break;
      GANTRY_ASSIGN_OR_RETURN(Target item, ParseOneTarget(attributes));
      tuple.items.push_back(std::move(item));
      if (!expressions_.AtOperator(",")) break;
      is_tuple = true;
    }
    if (is_tuple) return tuple;
    if (tuple.items.empty()) return expressions_.Unexpected("a name");
    Target only = std::move(tuple.items[0]);
    return only;
  }

  absl::StatusOr<Target> ParseOneTarget(Attributes attributes) {
    const TemplateToken token = expressions_.current();
    GANTRY_ASSIGN_OR_RETURN(const ExpressionPointer expression, expressions_.ParsePrimary());
    if (attributes == Attributes::kYes && expression->kind == Expression::Kind::kName &&
        expressions_.SkipOperator(".")) {
      GANTRY_ASSIGN_OR_RETURN(const TemplateToken attribute,
                              expressions_.Expect(Token::kName, "a name"));
      return Target{.kind = Target::Kind::kAttribute,
                    .at = token.at,
                    .name = expression->name,
                    .attribute = attribute.text};
    }
    return TargetOf(*expression);
  }

  absl::StatusOr<Target> TargetOf(const Expression& expression) const {
    if (expression.kind == Expression::Kind::kName) {
      return Target{.kind = Target::Kind::kName, .at = expression.at, .name = expression.name};
    }
    if (expression.kind != Expression::Kind::kTuple) {
      return TemplateError(expression.at, "this cannot be assigned to");
    }
    Target tuple{.kind = Target::Kind::kTuple, .at = expression.at};
    for (const ExpressionPointer& operand : expression.operands) {
      GANTRY_ASSIGN_OR_RETURN(Target item, TargetOf(*operand));
      tuple.items.push_back(std::move(item));
    }
    return tuple;
  }

  absl::Status CheckNotLoop(const Target& target) const {
    if (target.kind == Target::Kind::kName && target.name == "loop") {
      return TemplateError(target.at, "'loop' cannot be assigned to");
    }
    for (const Target& item : target.items) GANTRY_RETURN_IF_ERROR(CheckNotLoop(item));
    return absl::OkStatus();
  }

  ExpressionParser expressions_;
  TemplateSyntax syntax_;
  int depth_ = 0;
  int loops_ = 0;  // around what is parsed, in the same function
};

}  // namespace

absl::StatusOr<TemplateSyntax> ParseTemplate(std::string_view source) {
  GANTRY_ASSIGN_OR_RETURN(std::vector<TemplateToken> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace gantry
