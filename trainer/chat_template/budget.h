// The work a render may do. A step is about the evaluation of one node, one item of a loop, or 32
// bytes of text made, so it bounds time and, since whatever is allocated was paid for, memory:
// about 32 bytes for each step.
//
// Thread-compatible.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_BUDGET_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_BUDGET_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "base/strings.h"

namespace gantry {

class Budget {
 public:
  struct Limits {
    int64_t steps;
    int64_t text_bytes;  // of one string, and of the output
  };
  explicit Budget(Limits limits) : limits_(limits), left_(limits.steps) {}

  // Errors: kResourceExhausted when no more steps are left.
  absl::Status Spend(int64_t steps) {
    if (steps > left_) [[unlikely]] {
      left_ = 0;
      return ResourceExhausted("the template takes more than ", limits_.steps,
                               " steps: does it loop without end?");
    }
    left_ -= steps;
    return absl::OkStatus();
  }
  // Errors: kResourceExhausted when a string of so many bytes is too long.
  absl::Status CheckText(size_t bytes) const {
    if (bytes <= static_cast<size_t>(limits_.text_bytes)) [[likely]]
      return absl::OkStatus();
    return ResourceExhausted("a text of more than ", limits_.text_bytes, " bytes");
  }
  // Before a string of so many bytes is made. Errors: kResourceExhausted.
  absl::Status SpendText(size_t bytes) {
    absl::Status fits = CheckText(bytes);
    if (!fits.ok()) [[unlikely]]
      return fits;
    return Spend(1 + static_cast<int64_t>(bytes) / 32);
  }
  // Before `count` values are made or walked. Errors: kResourceExhausted.
  absl::Status SpendItems(size_t count) { return Spend(1 + static_cast<int64_t>(count)); }

 private:
  Limits limits_;
  int64_t left_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_BUDGET_H_
