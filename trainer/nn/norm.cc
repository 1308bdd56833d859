#include "trainer/nn/norm.h"

namespace gantry {
namespace {

RmsNormWeight RmsOf(const NormWeight& weight) {
  return {.parameter = weight.parameter, .epsilon = weight.epsilon};
}
LayerNormWeight LayerOf(const NormWeight& weight) {
  return {.parameter = weight.parameter, .bias = *weight.bias, .epsilon = weight.epsilon};
}

}  // namespace

absl::StatusOr<Var> Norm(Tape& tape, const Var& x, const NormWeight& weight) {
  if (weight.bias.has_value()) return LayerNorm(tape, x, LayerOf(weight));
  return RmsNorm(tape, x, RmsOf(weight));
}

absl::StatusOr<SumAndNorm> AddNorm(Tape& tape, const Var& x, const Var& residual,
                                   const NormWeight& weight) {
  if (weight.bias.has_value()) return AddLayerNorm(tape, x, residual, LayerOf(weight));
  return AddRmsNorm(tape, x, residual, RmsOf(weight));
}

}  // namespace gantry
