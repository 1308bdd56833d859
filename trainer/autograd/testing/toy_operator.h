// y = w * x element by element, with its kernels counted and made to fail on demand: the operator
// of the tape's own tests.
#ifndef GANTRY_TRAINER_AUTOGRAD_TESTING_TOY_OPERATOR_H_
#define GANTRY_TRAINER_AUTOGRAD_TESTING_TOY_OPERATOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/autograd/parameter_lease.h"
#include "trainer/autograd/tape.h"

namespace gantry {

inline constexpr int64_t kToyElements = 8;

struct ToyCounts {
  int forward = 0;
  int backward = 0;
  absl::Status forward_error;  // returned by the forward kernel
  absl::Status backward_error;
};

// x is f32 [1, kToyElements], the weight an f32 vector. `counts` outlives the tape.
absl::StatusOr<Var> Toy(Tape& tape, const Var& x, const Parameter& weight, ToyCounts& counts);

}  // namespace gantry

#endif  // GANTRY_TRAINER_AUTOGRAD_TESTING_TOY_OPERATOR_H_
