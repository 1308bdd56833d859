#include "trainer/chat_template/renderer.h"

#include <cstddef>
#include <cstdint>
#include <functional>
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
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/depth_guard.h"
#include "trainer/chat_template/functions.h"
#include "trainer/chat_template/lexer.h"
#include "trainer/chat_template/loop_object.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/scope.h"
#include "trainer/chat_template/syntax.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {
namespace {

using Kind = Statement::Kind;

// Puts a value back when it goes.
template <typename T>
class Restore {
 public:
  Restore(T& place, T value) : place_(place), old_(std::exchange(place, std::move(value))) {}
  ~Restore() { place_ = std::move(old_); }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& place_;
  T old_;
};

// A macro with the scope that it was defined in.
class MacroObject final : public Callable {
 public:
  MacroObject(Renderer& renderer, const MacroSyntax& syntax, std::shared_ptr<Scope> closure)
      : renderer_(renderer), syntax_(syntax), closure_(std::move(closure)) {}

  std::string_view type_name() const override { return "Macro"; }
  absl::StatusOr<std::string> Describe(Budget&) override {
    return syntax_.name.empty() ? "<Macro anonymous>" : StrCat("<Macro '", syntax_.name, "'>");
  }
  absl::StatusOr<std::optional<Value>> Attribute(std::string_view name) override {
    if (name == "name") return Value::String(syntax_.name);
    return std::optional<Value>();
  }
  absl::StatusOr<Value> Call(RenderState&, const Arguments& arguments) override {
    return renderer_.CallMacro(syntax_, closure_, arguments);
  }

 private:
  Renderer& renderer_;
  const MacroSyntax& syntax_;
  const std::shared_ptr<Scope> closure_;
};

// The items for which a test holds.
class TestedItems final : public ValueIterator {
 public:
  using Test = std::function<absl::StatusOr<bool>(const Value&)>;
  TestedItems(std::shared_ptr<ValueIterator> source, Test test)
      : ValueIterator(source->depth() + 1), source_(std::move(source)), test_(std::move(test)) {}

  absl::StatusOr<std::optional<Value>> Next() override {
    while (true) {
      GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> item, source_->Next());
      if (!item.has_value()) return item;
      GANTRY_ASSIGN_OR_RETURN(const bool passes, test_(*item));
      if (passes) return item;
    }
  }

 private:
  const std::shared_ptr<ValueIterator> source_;
  const Test test_;
};

// Takes the named argument out.
std::optional<Value> TakeNamed(Arguments& arguments, std::string_view name) {
  for (size_t i = 0; i < arguments.named.size(); ++i) {
    if (arguments.named[i].first != name) continue;
    Value value = std::move(arguments.named[i].second);
    arguments.named.erase(arguments.named.begin() + static_cast<std::ptrdiff_t>(i));
    return value;
  }
  return std::nullopt;
}

}  // namespace

absl::Status Renderer::Located(TemplatePosition at, absl::Status status) {
  if (status.ok() || located_) return status;
  located_ = true;
  return MakeStatus(status.code(), "line ", at.line, ", column ", at.column, ": ",
                    FromAbsl(status.message()));
}

absl::StatusOr<Renderer::Result> Renderer::Run(const Value::Entries& variables) {
  auto context = std::make_shared<Scope>(nullptr);
  for (const auto& [name, value] : variables) context->Set(name.string(), value);
  scope_ = NewScope(context, syntax_.hidden);
  GANTRY_RETURN_IF_ERROR(RunBody(syntax_.body).status());
  return std::move(result_);
}

std::shared_ptr<Scope> Renderer::NewScope(const std::shared_ptr<Scope>& outer,
                                          const std::vector<std::string>& hidden) const {
  auto scope = std::make_shared<Scope>(outer);
  for (const std::string& name : hidden) {
    scope->Set(name, Value::Undefined(StrCat("'", name, "' is undefined")));
  }
  return scope;
}

absl::Status Renderer::Write(TemplatePosition at, std::string_view text) {
  GANTRY_RETURN_IF_ERROR(Located(at, state_.budget().CheckText(out_->size() + text.size())));
  GANTRY_RETURN_IF_ERROR(Located(at, state_.budget().SpendText(text.size())));
  *out_ += text;
  return absl::OkStatus();
}

absl::StatusOr<Renderer::Flow> Renderer::RunBody(const std::vector<Statement>& body) {
  const DepthGuard guard(depth_);
  for (const Statement& statement : body) {
    if (depth_ > kRenderDepthMax) {
      return Located(statement.at, ResourceExhausted("calls and blocks nest more than ",
                                                     kRenderDepthMax, " levels deep"));
    }
    GANTRY_RETURN_IF_ERROR(Located(statement.at, state_.budget().Spend(1)));
    GANTRY_ASSIGN_OR_RETURN(const Flow flow, RunStatement(statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<Renderer::Flow> Renderer::RunStatement(const Statement& statement) {
  absl::Status status;
  switch (statement.kind) {
    case Kind::kText:
      status = Write(statement.at, statement.text);
      break;
    case Kind::kPrint:
      status = RunPrint(statement);
      break;
    case Kind::kIf:
      return RunIf(statement);
    case Kind::kFor:
      status = RunFor(statement);
      break;
    case Kind::kSet:
      status = RunSet(statement);
      break;
    case Kind::kSetBlock:
      return RunSetBlock(statement);
    case Kind::kMacro:
      status = RunMacro(statement);
      break;
    case Kind::kCallBlock:
      status = RunCallBlock(statement);
      break;
    case Kind::kFilterBlock:
      return RunFilterBlock(statement);
    case Kind::kWith:
      return RunWith(statement);
    case Kind::kGeneration:
      status = RunGeneration(statement);
      break;
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
  }
  GANTRY_RETURN_IF_ERROR(status);
  return Flow::kNext;
}

absl::StatusOr<Renderer::Flow> Renderer::RunIf(const Statement& statement) {
  for (size_t i = 0; i < statement.branches.size(); ++i) {
    if (i < statement.expressions.size()) {
      GANTRY_ASSIGN_OR_RETURN(const Value test, Evaluate(*statement.expressions[i]));
      if (!Truth(test)) continue;
    }
    return RunBody(statement.branches[i]);
  }
  return Flow::kNext;
}

absl::Status Renderer::RunPrint(const Statement& statement) {
  for (const ExpressionPointer& expression : statement.expressions) {
    GANTRY_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression));
    GANTRY_ASSIGN_OR_RETURN(const std::string text,
                            Located(expression->at, ToText(value, state_.budget())));
    GANTRY_RETURN_IF_ERROR(Write(expression->at, text));
  }
  return absl::OkStatus();
}

absl::Status Renderer::CheckNamespaces(const Target& target) {
  if (target.kind == Target::Kind::kAttribute) {
    const Value* found = scope_->Find(target.name);
    if (found == nullptr || Namespace::In(*found) == nullptr) {
      return Located(target.at, InvalidArgument("'", target.name,
                                                "' is no namespace, so its attributes cannot be "
                                                "set"));
    }
  }
  for (const Target& item : target.items) GANTRY_RETURN_IF_ERROR(CheckNamespaces(item));
  return absl::OkStatus();
}

absl::Status Renderer::Assign(const Target& target, const Value& value) {
  switch (target.kind) {
    case Target::Kind::kName:
      scope_->Set(target.name, value);
      return absl::OkStatus();
    case Target::Kind::kAttribute:
      GANTRY_RETURN_IF_ERROR(CheckNamespaces(target));
      return Located(
          target.at,
          Namespace::In(*scope_->Find(target.name))->Set(state_, target.attribute, value));
    case Target::Kind::kTuple:
      break;
  }
  GANTRY_ASSIGN_OR_RETURN(const std::vector<Value> items,
                          Located(target.at, ToItems(value, state_.budget())));
  if (items.size() != target.items.size()) {
    return Located(target.at, InvalidArgument("expected ", target.items.size(),
                                              " values to unpack, got ", items.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    GANTRY_RETURN_IF_ERROR(Assign(target.items[i], items[i]));
  }
  return absl::OkStatus();
}

absl::Status Renderer::RunSet(const Statement& statement) {
  GANTRY_RETURN_IF_ERROR(CheckNamespaces(statement.targets[0]));
  GANTRY_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expressions[0]));
  return Assign(statement.targets[0], value);
}

absl::StatusOr<Renderer::Captured> Renderer::Capture(const std::vector<Statement>& body) {
  Captured captured{.text = {}, .flow = Flow::kNext};
  const Restore<std::string*> out(out_, &captured.text);
  GANTRY_ASSIGN_OR_RETURN(captured.flow, RunBody(body));
  return captured;
}

absl::StatusOr<Renderer::Flow> Renderer::RunSetBlock(const Statement& statement) {
  Value value;
  {
    const Restore<std::shared_ptr<Scope>> scope(scope_, NewScope(scope_, statement.hidden[0]));
    GANTRY_ASSIGN_OR_RETURN(const Captured captured, Capture(statement.branches[0]));
    if (captured.flow != Flow::kNext) return captured.flow;
    value = Value::String(captured.text);
    if (statement.expressions[0] != nullptr) {
      GANTRY_ASSIGN_OR_RETURN(value, ApplyFilters(*statement.expressions[0], value));
    }
  }
  GANTRY_RETURN_IF_ERROR(Assign(statement.targets[0], value));
  return Flow::kNext;
}

absl::StatusOr<Renderer::Flow> Renderer::RunFilterBlock(const Statement& statement) {
  const Restore<std::shared_ptr<Scope>> scope(scope_, NewScope(scope_, statement.hidden[0]));
  GANTRY_ASSIGN_OR_RETURN(const Captured captured, Capture(statement.branches[0]));
  if (captured.flow != Flow::kNext) return captured.flow;
  GANTRY_ASSIGN_OR_RETURN(const Value value,
                          ApplyFilters(*statement.expressions[0], Value::String(captured.text)));
  GANTRY_ASSIGN_OR_RETURN(const std::string text, Located(statement.at, TextOf(value)));
  GANTRY_RETURN_IF_ERROR(Write(statement.at, text));
  return Flow::kNext;
}

absl::StatusOr<Renderer::Flow> Renderer::RunWith(const Statement& statement) {
  std::vector<Value> values;
  for (const ExpressionPointer& expression : statement.expressions) {
    GANTRY_ASSIGN_OR_RETURN(Value value, Evaluate(*expression));
    values.push_back(std::move(value));
  }
  const Restore<std::shared_ptr<Scope>> scope(scope_, NewScope(scope_, statement.hidden[0]));
  for (size_t i = 0; i < values.size(); ++i) {
    GANTRY_RETURN_IF_ERROR(Assign(statement.targets[i], values[i]));
  }
  return RunBody(statement.branches[0]);
}

absl::Status Renderer::RunMacro(const Statement& statement) {
  GANTRY_RETURN_IF_ERROR(Located(statement.at, state_.budget().Spend(4)));
  scope_->Set(statement.macro->name,
              Value::FromObject(state_.Make<MacroObject>(*this, *statement.macro, scope_)));
  return absl::OkStatus();
}

absl::Status Renderer::RunCallBlock(const Statement& statement) {
  GANTRY_RETURN_IF_ERROR(Located(statement.at, state_.budget().Spend(4)));
  const Value caller = Value::FromObject(state_.Make<MacroObject>(*this, *statement.macro, scope_));
  GANTRY_ASSIGN_OR_RETURN(const Value value, EvaluateCall(*statement.expressions[0], &caller));
  GANTRY_ASSIGN_OR_RETURN(const std::string text,
                          Located(statement.at, ToText(value, state_.budget())));
  return Write(statement.at, text);
}

absl::Status Renderer::RunGeneration(const Statement& statement) {
  const Restore<std::shared_ptr<Scope>> scope(scope_, NewScope(scope_, statement.hidden[0]));
  const bool outermost = out_ == &result_.text;
  if (!outermost) result_.generation_places_known = false;
  const size_t begin = out_->size();
  GANTRY_RETURN_IF_ERROR(RunBody(statement.branches[0]).status());
  if (outermost) result_.generations.push_back({.begin = begin, .end = out_->size()});
  return absl::OkStatus();
}

absl::Status Renderer::RunFor(const Statement& statement) {
  GANTRY_ASSIGN_OR_RETURN(const Value items, Evaluate(*statement.expressions[0]));
  return RunLoop(statement, items, 0);
}

absl::StatusOr<std::shared_ptr<ValueIterator>> Renderer::LoopItems(const Statement& statement,
                                                                   const Value& items) {
  const TemplatePosition at = statement.expressions[0]->at;
  GANTRY_ASSIGN_OR_RETURN(std::shared_ptr<ValueIterator> iterator,
                          Located(at, Iterate(items, state_.budget())));
  if (statement.expressions[1] == nullptr) return iterator;
  auto test = [this, &statement, outer = scope_](const Value& item) -> absl::StatusOr<bool> {
    const Restore<std::shared_ptr<Scope>> scope(scope_, std::make_shared<Scope>(outer));
    GANTRY_RETURN_IF_ERROR(Assign(statement.targets[0], item));
    GANTRY_ASSIGN_OR_RETURN(const Value passes, Evaluate(*statement.expressions[1]));
    return Truth(passes);
  };
  return std::make_shared<TestedItems>(std::move(iterator), std::move(test));
}

absl::Status Renderer::RunLoop(const Statement& statement, const Value& items, int64_t depth) {
  const TemplatePosition at = statement.expressions[0]->at;
  const std::shared_ptr<Scope> outer = scope_;
  LoopObject::Options options{.iterator = {}, .length = {}, .recurse = {}, .depth = depth};
  GANTRY_ASSIGN_OR_RETURN(options.iterator, LoopItems(statement, items));
  if (statement.expressions[1] == nullptr && !items.Is(Value::Kind::kIterator)) {
    GANTRY_ASSIGN_OR_RETURN(options.length, Located(at, LengthOf(items)));
  }
  if (statement.recursive) {
    options.recurse = [this, &statement, outer](const Value& inner,
                                                int64_t level) -> absl::StatusOr<Value> {
      std::string text;
      const Restore<std::shared_ptr<Scope>> scope(scope_, outer);
      const Restore<std::string*> out(out_, &text);
      const DepthGuard guard(depth_);
      GANTRY_RETURN_IF_ERROR(RunLoop(statement, inner, level));
      return Value::String(text);
    };
  }
  GANTRY_RETURN_IF_ERROR(Located(at, state_.budget().Spend(8)));
  auto* const loop = state_.Make<LoopObject>(state_, std::move(options));
  // As in Jinja: a turn that ends by continue or break does not count.
  bool completed = false;
  while (true) {
    GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> item, Located(at, loop->Next()));
    if (!item.has_value()) break;
    const Restore<std::shared_ptr<Scope>> scope(scope_, NewScope(outer, statement.hidden[0]));
    scope_->Set("loop", Value::FromObject(loop));
    GANTRY_RETURN_IF_ERROR(Assign(statement.targets[0], *item));
    GANTRY_ASSIGN_OR_RETURN(const Flow flow, RunBody(statement.branches[0]));
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNext;
  }
  if (completed || statement.branches.size() < 2) return absl::OkStatus();
  const Restore<std::shared_ptr<Scope>> scope(scope_, NewScope(outer, statement.hidden[1]));
  return RunBody(statement.branches[1]).status();
}

absl::StatusOr<Value> Renderer::CallMacro(const MacroSyntax& macro,
                                          const std::shared_ptr<Scope>& closure,
                                          const Arguments& given) {
  Arguments arguments = given;
  const Restore<std::shared_ptr<Scope>> scope(scope_, NewScope(closure, macro.hidden));
  bool names_caller = false;
  std::vector<const Parameter*> missing;
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    names_caller = names_caller || parameter.name == "caller";
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      value = TakeNamed(arguments, parameter.name);
    }
    if (!value.has_value()) missing.push_back(&parameter);
    scope_->Set(parameter.name, value.value_or(Value::Undefined(
                                    StrCat("parameter '", parameter.name, "' was not provided"))));
  }
  if (macro.uses_caller && !names_caller) {
    scope_->Set("caller",
                TakeNamed(arguments, "caller").value_or(Value::Undefined("No caller defined")));
  }
  if (macro.uses_named) {
    Value::Entries entries;
    for (const auto& [name, value] : arguments.named) {
      entries.emplace_back(Value::String(name), value);
    }
    GANTRY_ASSIGN_OR_RETURN(const Value named, Shallow(Value::Dict(std::move(entries))));
    scope_->Set("kwargs", named);
  } else if (!arguments.named.empty()) {
    return InvalidArgument("macro '", macro.name, "' takes no keyword argument '",
                           arguments.named[0].first, "'");
  }
  const size_t count = macro.parameters.size();
  if (macro.uses_positional) {
    std::vector<Value> rest;
    for (size_t i = count; i < arguments.positional.size(); ++i) {
      rest.push_back(arguments.positional[i]);
    }
    GANTRY_ASSIGN_OR_RETURN(const Value varargs, Shallow(Value::Tuple(std::move(rest))));
    scope_->Set("varargs", varargs);
  } else if (arguments.positional.size() > count) {
    return InvalidArgument("macro '", macro.name, "' takes not more than ", count, " argument(s)");
  }
  for (const Parameter* parameter : missing) {
    if (parameter->default_value == nullptr) continue;
    GANTRY_ASSIGN_OR_RETURN(const Value value, Evaluate(*parameter->default_value));
    scope_->Set(parameter->name, value);
  }
  GANTRY_ASSIGN_OR_RETURN(const Captured captured, Capture(macro.body));
  return Value::String(captured.text);
}

}  // namespace gantry
