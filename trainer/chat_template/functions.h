// What every template can call or use by name: range, dict, namespace, cycler, joiner,
// raise_exception, strftime_now.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_FUNCTIONS_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_FUNCTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/value.h"

namespace gantry {

// The longest range, as in Jinja's sandbox.
inline constexpr int64_t kRangeMax = 100000;

// Nothing where there is no such name. Errors: kResourceExhausted.
absl::StatusOr<std::optional<Value>> FindGlobal(RenderState& state, std::string_view name);

// namespace(...): the one thing whose attributes a template may set.
class Namespace final : public Object {
 public:
  // The namespace in `value`, or null where it holds something else.
  static Namespace* In(const Value& value);

  // Errors: kInvalidArgument for a name that begins with '_'; kResourceExhausted.
  absl::Status Set(RenderState& state, std::string_view name, const Value& value);

  std::string_view type_name() const override { return "Namespace"; }
  absl::StatusOr<std::string> Describe(Budget& budget) override;
  absl::StatusOr<std::optional<Value>> Attribute(std::string_view name) override;
  bool callable() const override { return false; }
  absl::StatusOr<std::optional<int64_t>> Length() override { return std::optional<int64_t>(); }

 private:
  Value::Entries entries_;
  bool describing_ = false;  // it may hold itself
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_FUNCTIONS_H_
