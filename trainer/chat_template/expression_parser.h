// Parses the expressions of a template, with Jinja's grammar.
//
// Thread-compatible; owns its tokens.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_EXPRESSION_PARSER_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_EXPRESSION_PARSER_H_

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/chat_template/lexer.h"
#include "trainer/chat_template/syntax.h"

namespace gantry {

// Deeper trees are refused: it bounds the recursion of whoever walks them.
inline constexpr int kExpressionDepthMax = 150;

class ExpressionParser {
 public:
  // REQUIRES: the last token, and only it, is kEnd.
  explicit ExpressionParser(std::vector<TemplateToken> tokens) : tokens_(std::move(tokens)) {}

  const TemplateToken& current() const { return tokens_[next_]; }
  bool At(TemplateToken::Kind kind) const { return current().kind == kind; }
  bool AtName(std::string_view name) const;
  bool AtOperator(std::string_view text) const;
  TemplateToken Take();
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view text);
  absl::StatusOr<TemplateToken> Expect(TemplateToken::Kind kind, std::string_view what);
  absl::Status ExpectOperator(std::string_view text);
  absl::Status Unexpected(std::string_view expected) const;

  enum class Conditional : bool { kNo, kYes };  // whether `a if b else c` may follow
  absl::StatusOr<ExpressionPointer> ParseExpression(Conditional conditional);
  // Also `a, b`. Where the tuple may end: at the end of a tag, `)`, and the name given (or none).
  struct TupleOptions {
    Conditional conditional = Conditional::kYes;
    std::string_view end_name = {};
    bool in_parentheses = false;
  };
  absl::StatusOr<ExpressionPointer> ParseTuple(const TupleOptions& options);
  // Filters from the current name on, over `input`, which may be null: name(call)|name(call)...
  absl::StatusOr<ExpressionPointer> ParseFilters(ExpressionPointer input);
  absl::StatusOr<ExpressionPointer> ParsePrimary();

  // Names that the expressions so far have used, for macros: see MacroSyntax.
  struct SpecialNames {
    bool caller = false;
    bool kwargs = false;
    bool varargs = false;
  };
  SpecialNames& special_names() { return special_names_; }

  // Filters and tests that do not exist and that no condition guards, as Jinja refuses them before
  // it renders. `firm` ones stay when the condition around them is left.
  struct UnknownName {
    absl::Status error;
    bool firm = false;
  };
  std::vector<UnknownName>& unknown_names() { return unknown_names_; }
  void ForgetUnknownSince(size_t count);
  void ConfirmUnknownSince(size_t count);

 private:
  using Level = absl::StatusOr<ExpressionPointer> (ExpressionParser::*)();
  absl::StatusOr<ExpressionPointer> ParseConditional();
  absl::StatusOr<ExpressionPointer> ParseOr();
  absl::StatusOr<ExpressionPointer> ParseAnd();
  absl::StatusOr<ExpressionPointer> ParseNot();
  absl::StatusOr<ExpressionPointer> ParseCompare();
  absl::StatusOr<ExpressionPointer> ParseSum();
  absl::StatusOr<ExpressionPointer> ParseConcatenation();
  absl::StatusOr<ExpressionPointer> ParseProduct();
  absl::StatusOr<ExpressionPointer> ParsePower();
  absl::StatusOr<ExpressionPointer> ParseUnary();
  absl::StatusOr<ExpressionPointer> ParseSigned();
  absl::StatusOr<ExpressionPointer> ParseBinary(Level next,
                                                std::initializer_list<std::string_view> operators);
  absl::StatusOr<ExpressionPointer> ParseLogical(Level next, std::string_view name,
                                                 Expression::Kind kind);
  absl::StatusOr<ExpressionPointer> ParseName();
  absl::StatusOr<ExpressionPointer> ParseString();
  absl::StatusOr<ExpressionPointer> ParseList();
  absl::StatusOr<ExpressionPointer> ParseDict();
  absl::StatusOr<ExpressionPointer> ParsePostfix(ExpressionPointer node);
  absl::StatusOr<ExpressionPointer> ParseFilterPostfix(ExpressionPointer node);
  absl::StatusOr<ExpressionPointer> ParseSubscript(ExpressionPointer node);
  absl::StatusOr<ExpressionPointer> ParseIndex(ExpressionPointer node, TemplatePosition at);
  absl::StatusOr<ExpressionPointer> ParseCall(ExpressionPointer node);
  absl::StatusOr<ExpressionPointer> ParseTest(ExpressionPointer node);
  absl::Status ParseArguments(Expression& node);
  absl::Status ParseArgument(CallSyntax& call);
  absl::StatusOr<std::string> ParseDottedName();
  bool BeginsTestArgument() const;
  // The node with its depth. Errors: kInvalidArgument when it is too deep.
  absl::StatusOr<ExpressionPointer> Finish(ExpressionPointer node) const;

  const std::vector<TemplateToken> tokens_;
  size_t next_ = 0;
  int nesting_ = 0;
  SpecialNames special_names_;
  std::vector<UnknownName> unknown_names_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_EXPRESSION_PARSER_H_
