#include "trainer/nn/layer_norm.h"

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/dtype.h"
#include "base/status_macros.h"
#include "kernels/layer_norm.h"

namespace gantry {
namespace {

constexpr std::string_view kName = "layer_norm";

// What both backward passes need.
struct SavedNorm {
  LayerNormWeight weight;
  Activation h;
  Activation statistics;  // [2, rows]: means, then reciprocal deviations
};

LayerNormStatistics StatisticsOf(const Activation& statistics) {
  const auto rows = static_cast<size_t>(statistics.cols());
  float* first = statistics.flat().As<float>();
  return {.mean = {first, rows}, .rstd = {first + rows, rows}};
}

std::array<Parameter, 2> ParametersOf(const LayerNormWeight& weight) {
  return {weight.parameter, weight.bias};
}

struct NormGradients {
  Activation grad_y;
  Activation grad_residual;  // without memory for none
  Activation grad_h;
};

absl::Status RunBackward(Tape& tape, const SavedNorm& saved, const NormGradients& gradients) {
  const MatrixShape shape = saved.h.shape();
  GANTRY_ASSIGN_OR_RETURN(const ArenaBuffer workspace,
                          tape.AllocateWorkspace(LayerNormBackwardWorkspace(shape)));
  const std::array<BackwardUse, 2> uses = {
      BackwardUse{saved.weight.parameter, BackwardRead::kValue},
      BackwardUse{saved.weight.bias, BackwardRead::kNone}};
  return tape.BackwardKernels(kName, uses, [&](const LeasedParameters& parameters) {
    const MatrixShape row{.rows = 1, .cols = shape.cols};
    using ParameterGradient = LayerNormBackwardArgs::ParameterGradient;
    const auto gradient = [&](int i) -> std::optional<ParameterGradient> {
      if (!parameters.HasGradient(i)) return std::nullopt;
      return ParameterGradient{.gradient = parameters.Gradient(i, row).Flat(),
                               .accumulate = parameters.GradientAccumulate(i)};
    };
    LayerNormBackwardArgs args{.h = saved.h.matrix(),
                               .weight = parameters.Value(0, row).Flat(),
                               .statistics = StatisticsOf(saved.statistics),
                               .grad_y = gradients.grad_y.matrix(),
                               .grad_residual = std::nullopt,
                               .grad_h = gradients.grad_h.matrix(),
                               .grad_weight = gradient(0),
                               .grad_bias = gradient(1),
                               .workspace = SpanOf(workspace)};
    if (gradients.grad_residual.has_memory()) {
      args.grad_residual = gradients.grad_residual.matrix();
    }
    LayerNormBackward(tape.context().kernels, args);
    return absl::OkStatus();
  });
}

class LayerNormNode final : public Node {
 public:
  LayerNormNode(SavedNorm saved, GradientCellPtr input, GradientCellPtr output)
      : saved_(std::move(saved)), input_(std::move(input)), output_(std::move(output)) {}

  absl::Status Backward(Tape& tape) override {
    const Activation grad_y = Tape::TakeGradient(output_);
    if (!grad_y.has_memory()) return absl::OkStatus();
    if (input_ == nullptr) {  // only the parameters' gradients are wanted
      GANTRY_ASSIGN_OR_RETURN(const Activation unused,
                              tape.Allocate(grad_y.shape(), grad_y.dtype()));
      return RunBackward(tape, saved_, {grad_y, Activation(), unused});
    }
    // The residual stream's gradient, if it came first, is added in the same pass.
    GANTRY_ASSIGN_OR_RETURN(const GradientTarget target, tape.TargetOf(input_, grad_y.shape()));
    const bool adds = target.accumulate == Accumulate::kAdd;
    return RunBackward(tape, saved_,
                       {grad_y, adds ? target.activation : Activation(), target.activation});
  }

 private:
  SavedNorm saved_;
  GradientCellPtr input_;
  GradientCellPtr output_;
};

class AddLayerNormNode final : public Node {
 public:
  struct Cells {
    GradientCellPtr x;  // null when no gradient flows to it
    GradientCellPtr residual;
    GradientCellPtr sum;
    GradientCellPtr normalized;
  };
  AddLayerNormNode(SavedNorm saved, Cells cells)
      : saved_(std::move(saved)), cells_(std::move(cells)) {}

  absl::Status Backward(Tape& tape) override {
    const Activation grad_y = Tape::TakeGradient(cells_.normalized);
    Activation grad_h = Tape::TakeGradient(cells_.sum);
    if (grad_y.has_memory()) {
      const bool in_place = grad_h.unique();
      const Activation grad_residual = grad_h;
      if (!in_place) {
        GANTRY_ASSIGN_OR_RETURN(grad_h, tape.Allocate(grad_y.shape(), grad_y.dtype()));
      }
      GANTRY_RETURN_IF_ERROR(RunBackward(tape, saved_, {grad_y, grad_residual, grad_h}));
    }
    if (!grad_h.has_memory()) return absl::OkStatus();
    if (cells_.x != nullptr) GANTRY_RETURN_IF_ERROR(tape.Contribute(cells_.x, grad_h));
    if (cells_.residual == nullptr) return absl::OkStatus();
    return tape.Contribute(cells_.residual, std::move(grad_h));
  }

 private:
  SavedNorm saved_;
  Cells cells_;
};

// One norm's values; `sum` and `residual` are both given or neither.
struct NormValues {
  const Activation& x;
  const Activation* residual;
  const Activation* sum;
  const Activation& y;
  const Activation& statistics;
};

absl::Status RunForward(Tape& tape, const LayerNormWeight& weight, const NormValues& values) {
  const std::array<Parameter, 2> parameters = ParametersOf(weight);
  return tape.Forward(kName, parameters, [&](const LeasedParameters& leased) {
    const MatrixShape row{.rows = 1, .cols = values.x.cols()};
    LayerNormForwardArgs args{.x = values.x.matrix(),
                              .residual = std::nullopt,
                              .sum = std::nullopt,
                              .weight = leased.Value(0, row).Flat(),
                              .bias = leased.Value(1, row).Flat(),
                              .epsilon = weight.epsilon,
                              .y = values.y.matrix(),
                              .statistics = StatisticsOf(values.statistics)};
    if (values.residual != nullptr) {
      args.residual = values.residual->matrix();
      args.sum = values.sum->matrix();
    }
    LayerNormForward(tape.context().kernels, args);
    return absl::OkStatus();
  });
}

absl::StatusOr<Activation> AllocateStatistics(Tape& tape, int64_t rows) {
  return tape.Allocate({.rows = 2, .cols = rows}, DType::kF32);
}

}  // namespace

absl::StatusOr<Var> LayerNorm(Tape& tape, const Var& x, const LayerNormWeight& weight) {
  const Activation& h = x.value();
  SavedNorm saved{.weight = weight, .h = tape.Save(h), .statistics = {}};
  GANTRY_ASSIGN_OR_RETURN(Activation y, tape.Allocate(h.shape(), h.dtype()));
  GANTRY_ASSIGN_OR_RETURN(const Activation statistics, AllocateStatistics(tape, h.rows()));
  GANTRY_RETURN_IF_ERROR(
      RunForward(tape, weight,
                 {.x = h, .residual = nullptr, .sum = nullptr, .y = y, .statistics = statistics}));
  saved.statistics = tape.Save(statistics);
  Var output = tape.MakeVar(std::move(y), {&x}, ParametersOf(weight));
  if (output.requires_gradient()) {
    tape.Record(std::make_unique<LayerNormNode>(std::move(saved), x.gradient(), output.gradient()));
  }
  return output;
}

absl::StatusOr<SumAndNorm> AddLayerNorm(Tape& tape, const Var& x, const Var& residual,
                                        const LayerNormWeight& weight) {
  const Activation& input = x.value();
  GANTRY_ASSIGN_OR_RETURN(Activation sum, tape.Allocate(input.shape(), input.dtype()));
  GANTRY_ASSIGN_OR_RETURN(Activation y, tape.Allocate(input.shape(), input.dtype()));
  GANTRY_ASSIGN_OR_RETURN(const Activation statistics, AllocateStatistics(tape, input.rows()));
  GANTRY_RETURN_IF_ERROR(RunForward(
      tape, weight,
      {.x = input, .residual = &residual.value(), .sum = &sum, .y = y, .statistics = statistics}));
  SavedNorm saved{.weight = weight, .h = tape.Save(sum), .statistics = tape.Save(statistics)};
  SumAndNorm output{
      .sum = tape.MakeVar(std::move(sum), {&x, &residual}, {}),
      .normalized = tape.MakeVar(std::move(y), {&x, &residual}, ParametersOf(weight))};
  if (output.normalized.requires_gradient()) {
    tape.Record(std::make_unique<AddLayerNormNode>(
        std::move(saved), AddLayerNormNode::Cells{.x = x.gradient(),
                                                  .residual = residual.gradient(),
                                                  .sum = output.sum.gradient(),
                                                  .normalized = output.normalized.gradient()}));
  }
  return output;
}

}  // namespace gantry
