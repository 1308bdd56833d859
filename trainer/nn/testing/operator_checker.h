// Checks an operator against a scalar reference in double: its outputs, and the gradients of all
// its inputs and parameters against central differences of the reference.
//
// The loss is the sum of all outputs times fixed random weights. The reference sees the very values
// that the operator sees (rounded to the types in use). Every element of every gradient is
// compared. Each case runs twice in one step, so that parameter gradients are written once and
// added to once; the second time the inputs' gradients hold an earlier contribution.
#ifndef GANTRY_TRAINER_NN_TESTING_OPERATOR_CHECKER_H_
#define GANTRY_TRAINER_NN_TESTING_OPERATOR_CHECKER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "chunk/chunk_layout.h"
#include "kernels/views.h"
#include "trainer/autograd/tape.h"

namespace gantry {

using Values = std::vector<double>;

struct OperatorCase {
  struct Part {
    MatrixShape shape;
    Trainability trainability = Trainability::kTrainable;  // inputs: whether a gradient is asked
  };
  std::vector<Part> inputs;
  std::vector<Part> parameters;
  // Runs the operator.
  std::function<absl::StatusOr<std::vector<Var>>(Tape& tape, std::vector<Var> inputs,
                                                 const std::vector<Parameter>& parameters)>
      run;
  // All outputs, one behind the other, from the inputs and then the parameters.
  std::function<Values(const std::vector<Values>& values)> reference;
  uint64_t seed = 1;
  double scale = 1.0;  // of the random values
};

// Runs the case in f32 (tolerance 2e-5 of the largest value; differences have their own error) and
// in bf16 (3e-2), with parameters in the same type and f32 gradients of them. Reports through
// GoogleTest.
void CheckOperator(const OperatorCase& c);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_TESTING_OPERATOR_CHECKER_H_
