// Walks over a parsed template and makes its text.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_RENDERER_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_RENDERER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/chat_template/arguments.h"
#include "trainer/chat_template/lexer.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/scope.h"
#include "trainer/chat_template/syntax.h"
#include "trainer/chat_template/value.h"

namespace gantry {

// Evaluations within evaluations, bodies within bodies and calls within calls, at most so deep: it
// bounds the use of the thread's stack.
inline constexpr int kRenderDepthMax = 800;

// For one render. Thread-compatible. Errors of all: with the line and column where they came up.
class Renderer {
 public:
  // Both outlive the renderer.
  Renderer(const TemplateSyntax& syntax, RenderState& state) : syntax_(syntax), state_(state) {}

  struct Span {
    size_t begin;
    size_t end;
  };
  struct Result {
    std::string text;
    std::vector<Span> generations;        // in order, of bytes
    bool generation_places_known = true;  // false: one lay within a macro, a set or a filter block
  };
  absl::StatusOr<Result> Run(const Value::Entries& variables);

  // Runs a macro's body. Errors: those of it.
  absl::StatusOr<Value> CallMacro(const MacroSyntax& macro, const std::shared_ptr<Scope>& closure,
                                  const Arguments& arguments);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // Statements (renderer.cc).
  absl::StatusOr<Flow> RunBody(const std::vector<Statement>& body);
  absl::StatusOr<Flow> RunStatement(const Statement& statement);
  absl::StatusOr<Flow> RunIf(const Statement& statement);
  absl::Status RunPrint(const Statement& statement);
  absl::Status RunSet(const Statement& statement);
  absl::StatusOr<Flow> RunSetBlock(const Statement& statement);
  absl::StatusOr<Flow> RunFilterBlock(const Statement& statement);
  absl::StatusOr<Flow> RunWith(const Statement& statement);
  absl::Status RunMacro(const Statement& statement);
  absl::Status RunCallBlock(const Statement& statement);
  absl::Status RunGeneration(const Statement& statement);
  absl::Status RunFor(const Statement& statement);
  absl::Status RunLoop(const Statement& statement, const Value& items, int64_t depth);
  absl::StatusOr<std::shared_ptr<ValueIterator>> LoopItems(const Statement& statement,
                                                           const Value& items);
  absl::Status Assign(const Target& target, const Value& value);
  absl::Status CheckNamespaces(const Target& target);
  // A scope within the current one, or within `outer`, that hides the names given.
  std::shared_ptr<Scope> NewScope(const std::shared_ptr<Scope>& outer,
                                  const std::vector<std::string>& hidden) const;
  // What `body` writes, in the current scope.
  struct Captured {
    std::string text;
    Flow flow;
  };
  absl::StatusOr<Captured> Capture(const std::vector<Statement>& body);
  absl::Status Write(TemplatePosition at, std::string_view text);

  // Expressions (expression_evaluator.cc).
  absl::StatusOr<Value> Evaluate(const Expression& node);
  absl::StatusOr<Value> EvaluateOrNone(const ExpressionPointer& node);
  absl::StatusOr<Value> EvaluateName(const Expression& node);
  absl::StatusOr<Value> EvaluateItems(const Expression& node);
  absl::StatusOr<Value> EvaluateDict(const Expression& node);
  absl::StatusOr<Value> EvaluateAccess(const Expression& node);
  absl::StatusOr<Value> EvaluateCall(const Expression& node, const Value* caller);
  absl::StatusOr<Value> EvaluateTest(const Expression& node);
  absl::StatusOr<Value> EvaluateFilter(const Expression& node, const Value* input);
  absl::StatusOr<Value> EvaluateUnary(const Expression& node);
  absl::StatusOr<Value> EvaluateLogical(const Expression& node);
  absl::StatusOr<Value> EvaluateBinary(const Expression& node);
  absl::StatusOr<Value> EvaluateConcatenation(const Expression& node);
  absl::StatusOr<Value> EvaluateCompare(const Expression& node);
  absl::StatusOr<Value> EvaluateConditional(const Expression& node);
  absl::StatusOr<Arguments> EvaluateArguments(const CallSyntax& call, TemplatePosition at);
  // A chain of filters whose innermost takes `input`.
  absl::StatusOr<Value> ApplyFilters(const Expression& filters, const Value& input);

  // Adds the place to an error that has none yet.
  absl::Status Located(TemplatePosition at, absl::Status status);
  template <typename T>
  absl::StatusOr<T> Located(TemplatePosition at, absl::StatusOr<T> result) {
    if (!result.ok()) [[unlikely]]
      return Located(at, result.status());
    return result;
  }

  const TemplateSyntax& syntax_;
  RenderState& state_;
  std::shared_ptr<Scope> scope_;
  Result result_;
  std::string* out_ = &result_.text;
  int depth_ = 0;
  bool located_ = false;  // an error has its place
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_RENDERER_H_
