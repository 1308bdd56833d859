#include "trainer/chat_template/name_scopes.h"

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trainer/chat_template/syntax.h"

namespace gantry {
namespace {

using Kind = Statement::Kind;

// What is known of the names in one scope.
class Names {
 public:
  explicit Names(const Names* parent) : parent_(parent) {}

  void Read(const std::string& name) {
    if (!Known(name)) known_.insert(name);
  }
  void Set(const std::string& name) {
    set_.insert(name);
    if (known_.contains(name)) return;
    if (parent_ == nullptr || !parent_->Known(name)) hidden_.insert(name);
    known_.insert(name);
  }
  void Parameter(const std::string& name) {
    set_.insert(name);
    known_.insert(name);
    hidden_.erase(name);
  }
  // Takes what the branches of an `if` did: what only they set is looked up outside before.
  void Merge(const std::vector<Names>& branches) {
    std::set<std::string> only_there;
    for (const Names& branch : branches) {
      for (const std::string& name : branch.set_) {
        if (!set_.contains(name)) only_there.insert(name);
      }
    }
    for (const Names& branch : branches) {
      known_.insert(branch.known_.begin(), branch.known_.end());
      set_.insert(branch.set_.begin(), branch.set_.end());
      hidden_.insert(branch.hidden_.begin(), branch.hidden_.end());
    }
    for (const std::string& name : only_there) hidden_.erase(name);
  }
  std::vector<std::string> hidden() const { return {hidden_.begin(), hidden_.end()}; }

 private:
  bool Known(const std::string& name) const {
    return known_.contains(name) || (parent_ != nullptr && parent_->Known(name));
  }

  const Names* parent_;
  std::set<std::string> known_;
  std::set<std::string> set_;
  std::set<std::string> hidden_;
};

void Visit(const ExpressionPointer& node, Names& names) {
  if (node == nullptr) return;
  if (node->kind == Expression::Kind::kName) names.Read(node->name);
  for (const ExpressionPointer& operand : node->operands) Visit(operand, names);
  for (const ExpressionPointer& argument : node->call.positional) Visit(argument, names);
  for (const auto& [name, argument] : node->call.named) Visit(argument, names);
  Visit(node->call.spread, names);
  Visit(node->call.spread_named, names);
}

void VisitTarget(const Target& target, Names& names) {
  if (target.kind == Target::Kind::kName) names.Set(target.name);
  if (target.kind == Target::Kind::kAttribute) names.Read(target.name);
  for (const Target& item : target.items) VisitTarget(item, names);
}

void DeclareTarget(const Target& target, Names& names) {
  if (target.kind == Target::Kind::kName) names.Parameter(target.name);
  for (const Target& item : target.items) DeclareTarget(item, names);
}

void VisitBody(const std::vector<Statement>& body, Names& names);

// From branch `first` on, of which each may be followed by others.
void VisitBranches(const Statement& statement, size_t first, Names& names) {
  if (first < statement.expressions.size()) Visit(statement.expressions[first], names);
  std::vector<Names> branches = {names, names};
  VisitBody(statement.branches[first], branches[0]);
  if (first + 1 < statement.branches.size()) {
    if (first + 1 < statement.expressions.size()) {
      VisitBranches(statement, first + 1, branches[1]);
    } else {
      VisitBody(statement.branches[first + 1], branches[1]);
    }
  }
  names.Merge(branches);
}

// What a statement reads and sets at its own level.
void VisitStatement(const Statement& statement, Names& names) {
  switch (statement.kind) {
    case Kind::kIf:
      VisitBranches(statement, 0, names);
      break;
    case Kind::kFor:
      Visit(statement.expressions[0], names);
      break;
    case Kind::kSet:
      Visit(statement.expressions[0], names);
      VisitTarget(statement.targets[0], names);
      break;
    case Kind::kSetBlock:
      VisitTarget(statement.targets[0], names);
      break;
    case Kind::kMacro:
      names.Set(statement.macro->name);
      break;
    default:
      for (const ExpressionPointer& expression : statement.expressions) Visit(expression, names);
      break;
  }
}

void VisitBody(const std::vector<Statement>& body, Names& names) {
  for (const Statement& statement : body) VisitStatement(statement, names);
}

void EnterBody(std::vector<Statement>& body, const Names& names);

// A body that is a scope, whose names may be declared already.
std::vector<std::string> EnterScope(std::vector<Statement>& body, Names& names) {
  VisitBody(body, names);
  EnterBody(body, names);
  return names.hidden();
}

void EnterMacro(MacroSyntax& macro, const Names& outer) {
  Names names(&outer);
  for (const Parameter& parameter : macro.parameters) names.Parameter(parameter.name);
  for (const char* name : {"caller", "kwargs", "varargs"}) names.Parameter(name);
  for (const Parameter& parameter : macro.parameters) Visit(parameter.default_value, names);
  macro.hidden = EnterScope(macro.body, names);
}

// The scopes within a statement, once all names around them are known.
void EnterStatement(Statement& statement, const Names& outer) {
  if (statement.macro != nullptr) {
    EnterMacro(*statement.macro, outer);
    return;
  }
  if (statement.kind == Kind::kIf) {
    for (std::vector<Statement>& branch : statement.branches) EnterBody(branch, outer);
    return;
  }
  for (size_t i = 0; i < statement.branches.size(); ++i) {
    Names names(&outer);
    if (i == 0 && statement.kind == Kind::kFor) {
      DeclareTarget(statement.targets[0], names);
      names.Parameter("loop");
    }
    if (statement.kind == Kind::kWith) {
      for (const Target& target : statement.targets) DeclareTarget(target, names);
    }
    statement.hidden.push_back(EnterScope(statement.branches[i], names));
  }
}

void EnterBody(std::vector<Statement>& body, const Names& names) {
  for (Statement& statement : body) EnterStatement(statement, names);
}

}  // namespace

void FindHiddenNames(TemplateSyntax& syntax) {
  Names names(nullptr);
  syntax.hidden = EnterScope(syntax.body, names);
}

}  // namespace gantry
