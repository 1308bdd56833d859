#include "trainer/nn/norm.h"

#include "base/check.h"

namespace gantry {
namespace {

RmsNormWeight RmsOf(const NormWeight& weight) {
  GANTRY_CHECK(!weight.bias.has_value());
  return {.parameter = weight.parameter, .epsilon = weight.epsilon};
}

}  // namespace

absl::StatusOr<Var> Norm(Tape& tape, const Var& x, const NormWeight& weight) {
  return RmsNorm(tape, x, RmsOf(weight));
}

absl::StatusOr<SumAndNorm> AddNorm(Tape& tape, const Var& x, const Var& residual,
                                   const NormWeight& weight) {
  return AddRmsNorm(tape, x, residual, RmsOf(weight));
}

}  // namespace gantry
