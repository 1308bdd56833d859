// What one render carries along: its budget, the time it sees, and the objects it makes.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_RENDER_STATE_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_RENDER_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/chat_template/arguments.h"
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/civil_time.h"
#include "trainer/chat_template/value.h"

namespace gantry {

// Thread-compatible.
class RenderState {
 public:
  RenderState(Budget::Limits limits, const CivilTime& now) : budget_(limits), now_(now) {}
  RenderState(const RenderState&) = delete;
  RenderState& operator=(const RenderState&) = delete;

  Budget& budget() { return budget_; }
  const CivilTime& now() const { return now_; }

  // A new object, which lives as long as the state. Who makes one pays for it before.
  template <typename T, typename... Parts>
  T* Make(Parts&&... parts) {
    auto object = std::make_unique<T>(std::forward<Parts>(parts)...);
    T* const made = object.get();
    objects_.push_back(std::move(object));
    return made;
  }

 private:
  Budget budget_;
  const CivilTime now_;
  std::vector<std::unique_ptr<Object>> objects_;
};

// An object that can be called. Thread-compatible.
class Callable : public Object {
 public:
  bool callable() const final { return true; }
  // Errors: those of what it does.
  virtual absl::StatusOr<Value> Call(RenderState& state, const Arguments& arguments) = 0;

  std::string_view type_name() const override { return "builtin_function_or_method"; }
  absl::StatusOr<std::optional<Value>> Attribute(std::string_view) override {
    return std::optional<Value>();
  }
  absl::StatusOr<std::optional<int64_t>> Length() override { return std::optional<int64_t>(); }
};

// Calls what is callable. Errors: kInvalidArgument when it is not; those of the call.
absl::StatusOr<Value> CallValue(RenderState& state, const Value& callee,
                                const Arguments& arguments);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_RENDER_STATE_H_
