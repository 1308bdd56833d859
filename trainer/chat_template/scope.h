// Names and their values, in scopes within scopes.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_SCOPE_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_SCOPE_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/chat_template/value.h"

namespace gantry {

// Thread-compatible. Shared by the scopes within it and by the macros defined in it, which may
// outlive it.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> parent) : parent_(std::move(parent)) {}

  // The innermost value of that name, or null.
  const Value* Find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
      for (const auto& [known, value] : scope->variables_) {
        if (known == name) return &value;
      }
    }
    return nullptr;
  }
  // In this scope.
  void Set(std::string_view name, const Value& value) {
    for (auto& [known, old] : variables_) {
      if (known != name) continue;
      old = value;
      return;
    }
    variables_.emplace_back(name, value);
  }

 private:
  const std::shared_ptr<Scope> parent_;
  std::vector<std::pair<std::string, Value>> variables_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_SCOPE_H_
