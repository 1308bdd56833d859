#include "trainer/nn/rms_norm.h"

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/dtype.h"
#include "base/status_macros.h"
#include "kernels/rms_norm.h"

namespace gantry {
namespace {

constexpr std::string_view kName = "rms_norm";

// What both backward passes need.
struct SavedNorm {
  RmsNormWeight weight;
  Activation h;
  Activation rstd;
};

std::span<float> RstdOf(const Activation& rstd) {
  return {rstd.flat().As<float>(), static_cast<size_t>(rstd.rows())};
}

struct NormGradients {
  Activation grad_y;
  Activation grad_residual;  // without memory for none
  Activation grad_h;
};

absl::Status RunBackward(Tape& tape, const SavedNorm& saved, const NormGradients& gradients) {
  const MatrixShape shape = saved.h.shape();
  GANTRY_ASSIGN_OR_RETURN(const ArenaBuffer workspace,
                          tape.AllocateWorkspace(RmsNormBackwardWorkspace(shape)));
  const BackwardUse use{saved.weight.parameter, BackwardRead::kValue};
  return tape.BackwardKernels(kName, {&use, 1}, [&](const LeasedParameters& parameters) {
    const MatrixShape row{.rows = 1, .cols = shape.cols};
    RmsNormBackwardArgs args{.h = saved.h.matrix(),
                             .weight = parameters.Value(0, row).Flat(),
                             .rstd = RstdOf(saved.rstd),
                             .grad_y = gradients.grad_y.matrix(),
                             .grad_residual = std::nullopt,
                             .grad_h = gradients.grad_h.matrix(),
                             .grad_weight = std::nullopt,
                             .accumulate = Accumulate::kOverwrite,
                             .workspace = SpanOf(workspace)};
    if (gradients.grad_residual.has_memory()) {
      args.grad_residual = gradients.grad_residual.matrix();
    }
    if (parameters.HasGradient(0)) {
      args.grad_weight = parameters.Gradient(0, row).Flat();
      args.accumulate = parameters.GradientAccumulate(0);
    }
    RmsNormBackward(tape.context().kernels, args);
    return absl::OkStatus();
  });
}

class RmsNormNode final : public Node {
 public:
  RmsNormNode(SavedNorm saved, GradientCellPtr input, GradientCellPtr output)
      : saved_(std::move(saved)), input_(std::move(input)), output_(std::move(output)) {}

  absl::Status Backward(Tape& tape) override {
    const Activation grad_y = Tape::TakeGradient(output_);
    if (!grad_y.has_memory()) return absl::OkStatus();
    if (input_ == nullptr) {  // only the weight's gradient is wanted
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

class AddRmsNormNode final : public Node {
 public:
  struct Cells {
    GradientCellPtr x;  // null when no gradient flows to it
    GradientCellPtr residual;
    GradientCellPtr sum;
    GradientCellPtr normalized;
  };
  AddRmsNormNode(SavedNorm saved, Cells cells)
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

absl::StatusOr<Activation> AllocateRstd(Tape& tape, int64_t rows) {
  return tape.Allocate({.rows = rows, .cols = 1}, DType::kF32);
}

}  // namespace

absl::StatusOr<Var> RmsNorm(Tape& tape, const Var& x, const RmsNormWeight& weight) {
  const Activation& h = x.value();
  SavedNorm saved{.weight = weight, .h = tape.Save(h), .rstd = {}};
  GANTRY_ASSIGN_OR_RETURN(Activation y, tape.Allocate(h.shape(), h.dtype()));
  GANTRY_ASSIGN_OR_RETURN(const Activation rstd, AllocateRstd(tape, h.rows()));
  GANTRY_RETURN_IF_ERROR(
      tape.Forward(kName, {&weight.parameter, 1}, [&](const LeasedParameters& parameters) {
        RmsNormForward(tape.context().kernels,
                       {.x = h.matrix(),
                        .residual = std::nullopt,
                        .sum = std::nullopt,
                        .weight = parameters.Value(0, {.rows = 1, .cols = h.cols()}).Flat(),
                        .epsilon = weight.epsilon,
                        .y = y.matrix(),
                        .rstd = RstdOf(rstd)});
        return absl::OkStatus();
      }));
  saved.rstd = tape.Save(rstd);
  Var output = tape.MakeVar(std::move(y), {&x}, {&weight.parameter, 1});
  if (output.requires_gradient()) {
    tape.Record(std::make_unique<RmsNormNode>(std::move(saved), x.gradient(), output.gradient()));
  }
  return output;
}

absl::StatusOr<SumAndNorm> AddRmsNorm(Tape& tape, const Var& x, const Var& residual,
                                      const RmsNormWeight& weight) {
  const Activation& input = x.value();
  GANTRY_ASSIGN_OR_RETURN(Activation sum, tape.Allocate(input.shape(), input.dtype()));
  GANTRY_ASSIGN_OR_RETURN(Activation y, tape.Allocate(input.shape(), input.dtype()));
  GANTRY_ASSIGN_OR_RETURN(const Activation rstd, AllocateRstd(tape, input.rows()));
  GANTRY_RETURN_IF_ERROR(
      tape.Forward(kName, {&weight.parameter, 1}, [&](const LeasedParameters& parameters) {
        RmsNormForward(tape.context().kernels,
                       {.x = input.matrix(),
                        .residual = residual.value().matrix(),
                        .sum = sum.matrix(),
                        .weight = parameters.Value(0, {.rows = 1, .cols = input.cols()}).Flat(),
                        .epsilon = weight.epsilon,
                        .y = y.matrix(),
                        .rstd = RstdOf(rstd)});
        return absl::OkStatus();
      }));
  SavedNorm saved{.weight = weight, .h = tape.Save(sum), .rstd = tape.Save(rstd)};
  SumAndNorm output{
      .sum = tape.MakeVar(std::move(sum), {&x, &residual}, {}),
      .normalized = tape.MakeVar(std::move(y), {&x, &residual}, {&weight.parameter, 1})};
  if (output.normalized.requires_gradient()) {
    tape.Record(std::make_unique<AddRmsNormNode>(
        std::move(saved), AddRmsNormNode::Cells{.x = x.gradient(),
                                                .residual = residual.gradient(),
                                                .sum = output.sum.gradient(),
                                                .normalized = output.normalized.gradient()}));
  }
  return output;
}

}  // namespace gantry
