#include "trainer/nn/lora.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "kernels/column_sums.h"
#include "kernels/columns.h"
#include "kernels/elementwise.h"
#include "kernels/low_rank.h"
#include "kernels/matmul.h"

namespace gantry {
namespace {

constexpr std::string_view kName = "lora";

// Positions in the lease of the forward pass; the base's are there for DoRA only.
enum LeaseIndex : int { kA, kB, kMagnitude, kWeight, kBias };

// An adapter with the shapes around it.
struct Adapter {
  LoraAdapter parameters;
  LoraOptions options;
  int64_t in;
  int64_t out;
  bool drops;  // dropout takes part

  bool is_dora() const { return parameters.magnitude.has_value(); }
  MatrixShape a_shape() const { return {.rows = options.rank, .cols = in}; }
  MatrixShape b_shape() const { return {.rows = out, .cols = options.rank}; }
  MatrixShape w_shape() const { return {.rows = out, .cols = in}; }
  MatrixShape out_row() const { return {.rows = 1, .cols = out}; }
  MatrixView Columns(const Activation& y) const {
    return y.matrix().Columns(parameters.first_column, out);
  }
  DropoutKey key() const {
    return {.seed = options.seed,
            .stream = static_cast<uint32_t>(parameters.a.tensor.value()),
            .step = options.step,
            .first_element = options.first_row * static_cast<uint64_t>(in)};
  }
};

// Of each column: g, and 1 / norm.
struct Gains {
  std::span<float> gain;
  std::span<float> inverse_norm;
};
Gains GainsOf(const Activation& gains) {
  const auto out = static_cast<size_t>(gains.cols());
  float* first = gains.flat().As<float>();
  return {.gain = {first, out}, .inverse_norm = {first + out, out}};
}

// What the backward pass needs; the last two for DoRA only.
struct Saved {
  Activation x;
  Activation z;      // s x' A^T
  Activation q;      // u + z B^T
  Activation gains;  // [2, out]
};

// c (+)= x w^T.
absl::Status Project(const KernelContext& kernels, ConstMatrixView x, ConstMatrixView w,
                     MatrixView c, Accumulate accumulate) {
  return Multiply(kernels, {.a = {.view = x, .transpose = Transpose::kNo},
                            .b = {.view = w, .transpose = Transpose::kYes},
                            .c = c,
                            .accumulate = accumulate});
}

class LoraNode final : public Node {
 public:
  struct Cells {
    GradientCellPtr x;  // null when no gradient flows to it
    GradientCellPtr y;
    GradientCellPtr output;
  };
  LoraNode(const Adapter& adapter, Saved saved, Cells cells)
      : adapter_(adapter), saved_(std::move(saved)), cells_(std::move(cells)) {}

  absl::Status Backward(Tape& tape) override {
    Activation grad = Tape::TakeGradient(cells_.output);
    if (!grad.has_memory()) return absl::OkStatus();
    GANTRY_ASSIGN_OR_RETURN(const Activation scaled, ScaledGradient(tape, grad));
    GANTRY_RETURN_IF_ERROR(RunLowRank(tape, grad, scaled));
    // Without dropout u is y, so that what flows into y is the scaled gradient.
    if (adapter_.is_dora() && !adapter_.drops && cells_.y != nullptr) {
      if (!grad.unique()) {
        GANTRY_ASSIGN_OR_RETURN(grad, Copied(tape, grad));
      }
      GANTRY_RETURN_IF_ERROR(tape.BackwardKernels(kName, {}, [&](const LeasedParameters&) {
        CopyRows(tape.context().kernels, {.from = scaled.matrix(), .to = adapter_.Columns(grad)});
        return absl::OkStatus();
      }));
    }
    saved_ = {};
    if (cells_.y == nullptr) return absl::OkStatus();
    return tape.Contribute(cells_.y, std::move(grad));
  }

 private:
  static absl::StatusOr<Activation> Copied(Tape& tape, const Activation& from) {
    GANTRY_ASSIGN_OR_RETURN(Activation to, tape.Allocate(from.shape(), from.dtype()));
    GANTRY_RETURN_IF_ERROR(tape.BackwardKernels(kName, {}, [&](const LeasedParameters&) {
      Cast(tape.context().kernels, {.from = from.flat(), .to = to.flat()});
      return absl::OkStatus();
    }));
    return to;
  }

  // g times the gradient of the adapter's columns; without memory for LoRA, whose g is 1. Also the
  // magnitude's gradient: the sum over rows of grad * q / norm.
  absl::StatusOr<Activation> ScaledGradient(Tape& tape, const Activation& grad) {
    if (!adapter_.is_dora()) return Activation();
    GANTRY_ASSIGN_OR_RETURN(Activation scaled, tape.Allocate(saved_.q.shape(), grad.dtype()));
    GANTRY_ASSIGN_OR_RETURN(const ArenaBuffer workspace,
                            tape.AllocateWorkspace(ColumnSumsWorkspace(saved_.q.shape())));
    const BackwardUse use{*adapter_.parameters.magnitude, BackwardRead::kNone};
    GANTRY_RETURN_IF_ERROR(
        tape.BackwardKernels(kName, {&use, 1}, [&](const LeasedParameters& leased) {
          const KernelContext& kernels = tape.context().kernels;
          const MatrixView q = saved_.q.matrix();
          const Gains gains = GainsOf(saved_.gains);
          const auto scale = [&](ConstMatrixView x, std::span<const float> factors, MatrixView y) {
            ScaleColumns(
                kernels,
                {.x = x, .factors = factors, .y = y, .accumulate = Accumulate::kOverwrite});
          };
          scale(adapter_.Columns(grad), gains.gain, scaled.matrix());
          if (!leased.HasGradient(0)) return absl::OkStatus();
          MultiplyElements(kernels, {.a = adapter_.Columns(grad), .b = q, .y = q});
          scale(q, gains.inverse_norm, q);
          ColumnSums(kernels, {.matrix = q,
                               .sums = leased.Gradient(0, adapter_.out_row()).Flat(),
                               .accumulate = leased.GradientAccumulate(0),
                               .workspace = SpanOf(workspace)});
          return absl::OkStatus();
        }));
    saved_.q = Activation();
    return scaled;
  }

  // Gradients of A, B and x. `scaled` as ScaledGradient returns it.
  absl::Status RunLowRank(Tape& tape, const Activation& grad, const Activation& scaled) {
    const int64_t rows = grad.rows();
    const bool to_x = cells_.x != nullptr;
    const bool reads_base = to_x && adapter_.is_dora() && adapter_.drops;
    GradientTarget target{.activation = {}, .accumulate = Accumulate::kOverwrite};
    if (to_x) {
      GANTRY_ASSIGN_OR_RETURN(target, tape.TargetOf(cells_.x, {.rows = rows, .cols = adapter_.in}));
    }
    GANTRY_ASSIGN_OR_RETURN(
        const Activation grad_z,
        tape.Allocate({.rows = rows, .cols = adapter_.options.rank}, grad.dtype()));
    // x' and then the gradient of it.
    GANTRY_ASSIGN_OR_RETURN(
        const Activation dropped,
        tape.Allocate({.rows = adapter_.drops ? rows : 0, .cols = adapter_.in}, grad.dtype()));
    GANTRY_ASSIGN_OR_RETURN(
        const Activation to_base,
        tape.Allocate({.rows = reads_base ? rows : 0, .cols = adapter_.out}, grad.dtype()));
    absl::InlinedVector<BackwardUse, 3> uses = {
        {adapter_.parameters.a, to_x ? BackwardRead::kValue : BackwardRead::kNone},
        {adapter_.parameters.b, BackwardRead::kValue}};
    if (reads_base) uses.push_back({adapter_.parameters.base.parameter, BackwardRead::kValue});
    return tape.BackwardKernels(kName, uses, [&](const LeasedParameters& leased) -> absl::Status {
      const KernelContext& kernels = tape.context().kernels;
      const MatrixView columns = scaled.has_memory() ? scaled.matrix() : adapter_.Columns(grad);
      GANTRY_RETURN_IF_ERROR(FactorGradients(kernels, leased, columns, grad_z, dropped));
      if (!to_x) return absl::OkStatus();
      const MatrixView grad_x = adapter_.drops ? dropped.matrix() : target.activation.matrix();
      GANTRY_RETURN_IF_ERROR(LinearBackwardInput(
          kernels, {.grad_y = grad_z.matrix(),
                    .weight = leased.Value(kA, adapter_.a_shape()),
                    .grad_x = grad_x,
                    .accumulate = adapter_.drops ? Accumulate::kOverwrite : target.accumulate}));
      if (!adapter_.drops) return absl::OkStatus();
      if (reads_base) {
        // u's part: (g - 1) times the gradient, through W.
        ScaleColumns(kernels, {.x = adapter_.Columns(grad),
                               .factors = GainsOf(saved_.gains).gain,
                               .y = to_base.matrix(),
                               .accumulate = Accumulate::kOverwrite,
                               .offset = -1.0F});
        GANTRY_RETURN_IF_ERROR(
            LinearBackwardInput(kernels, {.grad_y = to_base.matrix(),
                                          .weight = leased.Value(2, adapter_.w_shape()),
                                          .grad_x = grad_x,
                                          .accumulate = Accumulate::kAdd}));
      }
      Dropout(kernels, {.x = grad_x,
                        .y = target.activation.matrix(),
                        .key = adapter_.key(),
                        .rate = adapter_.options.dropout,
                        .accumulate = target.accumulate});
      return absl::OkStatus();
    });
  }

  // grad_z = s * columns B, and the gradients of B and A.
  absl::Status FactorGradients(const KernelContext& kernels, const LeasedParameters& leased,
                               const MatrixView& columns, const Activation& grad_z,
                               const Activation& dropped) const {
    GANTRY_RETURN_IF_ERROR(
        LinearBackwardInput(kernels, {.grad_y = columns,
                                      .weight = leased.Value(kB, adapter_.b_shape()),
                                      .grad_x = grad_z.matrix(),
                                      .accumulate = Accumulate::kOverwrite}));
    Scale(kernels, grad_z.flat(), adapter_.options.scale);
    if (leased.HasGradient(kB)) {
      GANTRY_RETURN_IF_ERROR(
          LinearBackwardWeight(kernels, {.grad_y = columns,
                                         .x = saved_.z.matrix(),
                                         .grad_weight = leased.Gradient(kB, adapter_.b_shape()),
                                         .accumulate = leased.GradientAccumulate(kB)}));
    }
    if (!leased.HasGradient(kA)) return absl::OkStatus();
    ConstMatrixView x = saved_.x.matrix();
    if (adapter_.drops) {
      Dropout(kernels, {.x = x,
                        .y = dropped.matrix(),
                        .key = adapter_.key(),
                        .rate = adapter_.options.dropout,
                        .accumulate = Accumulate::kOverwrite});
      x = dropped.matrix();
    }
    return LinearBackwardWeight(kernels, {.grad_y = grad_z.matrix(),
                                          .x = x,
                                          .grad_weight = leased.Gradient(kA, adapter_.a_shape()),
                                          .accumulate = leased.GradientAccumulate(kA)});
  }

  Adapter adapter_;
  Saved saved_;
  Cells cells_;
};

// The activations of one forward pass.
struct Values {
  const Activation& x;
  const Activation& dropped;
  const Activation& y;
  const Activation& z;
  const Activation& q;
  const Activation& gains;
};

float ElementOf(const ConstVectorView& values, int64_t i) {
  return values.dtype == DType::kF32 ? values.As<float>()[i]
                                     : static_cast<float>(values.As<BFloat16>()[i]);
}

// g and the inverse norms. REQUIRES: the lease has the magnitude and the weight.
absl::Status ComputeGains(const KernelContext& kernels, const Adapter& adapter,
                          const LeasedParameters& leased, const Activation& to,
                          std::span<std::byte> workspace) {
  const Gains gains = GainsOf(to);
  const ConstVectorView magnitude = leased.Value(kMagnitude, adapter.out_row()).Flat();
  GANTRY_RETURN_IF_ERROR(RowNorms(kernels, {.weight = leased.Value(kWeight, adapter.w_shape()),
                                            .change = {.a = leased.Value(kA, adapter.a_shape()),
                                                       .b = leased.Value(kB, adapter.b_shape()),
                                                       .scale = adapter.options.scale},
                                            .norms = gains.inverse_norm,
                                            .workspace = workspace}));
  for (int64_t i = 0; i < adapter.out; ++i) {
    const auto at = static_cast<size_t>(i);
    gains.inverse_norm[at] = 1.0F / gains.inverse_norm[at];
    gains.gain[at] = ElementOf(magnitude, i) * gains.inverse_norm[at];
  }
  return absl::OkStatus();
}

// DoRA: y += g q - u, where q = u + z B^T; without dropout u is y but for the bias.
absl::Status RunDora(const KernelContext& kernels, const Adapter& adapter,
                     const LeasedParameters& leased, const Values& values) {
  const MatrixView y = adapter.Columns(values.y);
  const MatrixView q = values.q.matrix();
  const ConstMatrixView b = leased.Value(kB, adapter.b_shape());
  const std::span<const float> gain = GainsOf(values.gains).gain;
  const auto add_bias = [&](float factor, const MatrixView& to) {
    if (!adapter.parameters.base.bias.has_value()) return;
    AddToRows(kernels,
              {.values = leased.Value(kBias, adapter.out_row()).Flat(), .factor = factor, .y = to});
  };
  if (adapter.drops) {
    GANTRY_RETURN_IF_ERROR(Project(kernels, values.dropped.matrix(),
                                   leased.Value(kWeight, adapter.w_shape()), q,
                                   Accumulate::kOverwrite));
    ScaleColumns(kernels, {.x = q,
                           .factors = gain,
                           .y = y,
                           .accumulate = Accumulate::kAdd,
                           .scale = 0.0F,
                           .offset = -1.0F});
  } else {
    CopyRows(kernels, {.from = y, .to = q});
    add_bias(-1.0F, q);
  }
  GANTRY_RETURN_IF_ERROR(Project(kernels, values.z.matrix(), b, q, Accumulate::kAdd));
  ScaleColumns(kernels, {.x = q,
                         .factors = gain,
                         .y = y,
                         .accumulate = adapter.drops ? Accumulate::kAdd : Accumulate::kOverwrite});
  if (!adapter.drops) add_bias(1.0F, y);
  return absl::OkStatus();
}

absl::Status RunForward(const KernelContext& kernels, const Adapter& adapter,
                        const LeasedParameters& leased, const Values& values,
                        std::span<std::byte> workspace) {
  ConstMatrixView x = values.x.matrix();
  if (adapter.drops) {
    Dropout(kernels, {.x = x,
                      .y = values.dropped.matrix(),
                      .key = adapter.key(),
                      .rate = adapter.options.dropout,
                      .accumulate = Accumulate::kOverwrite});
    x = values.dropped.matrix();
  }
  GANTRY_RETURN_IF_ERROR(Project(kernels, x, leased.Value(kA, adapter.a_shape()), values.z.matrix(),
                                 Accumulate::kOverwrite));
  Scale(kernels, values.z.flat(), adapter.options.scale);
  if (!adapter.is_dora()) {
    return Project(kernels, values.z.matrix(), leased.Value(kB, adapter.b_shape()),
                   adapter.Columns(values.y), Accumulate::kAdd);
  }
  GANTRY_RETURN_IF_ERROR(ComputeGains(kernels, adapter, leased, values.gains, workspace));
  return RunDora(kernels, adapter, leased, values);
}

using ParameterList = absl::InlinedVector<Parameter, 5>;

// In the order of LeaseIndex.
ParameterList ParametersOf(const LoraAdapter& adapter) {
  ParameterList parameters = {adapter.a, adapter.b};
  if (!adapter.magnitude.has_value()) return parameters;
  parameters.push_back(*adapter.magnitude);
  parameters.push_back(adapter.base.parameter);
  if (adapter.base.bias.has_value()) parameters.push_back(*adapter.base.bias);
  return parameters;
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): the value is consumed
absl::StatusOr<Var> AddLora(Tape& tape, const Var& x, Var y, const LoraAdapter& adapter,
                            const LoraOptions& options) {
  Activation value = y.value();
  const Activation& input = x.value();
  const int64_t rows = input.rows();
  const Adapter own{.parameters = adapter,
                    .options = options,
                    .in = input.cols(),
                    .out = adapter.base.out_features,
                    .drops = options.dropout > 0.0 && tape.mode() == Tape::Mode::kTraining};
  GANTRY_CHECK(!adapter.base.parameter.trainable()) << "the base of an adapter is frozen";
  GANTRY_CHECK_EQ(value.rows(), rows);
  const bool is_dora = own.is_dora();
  const DType dtype = tape.context().compute_dtype;
  Saved saved{.x = tape.Save(input), .z = {}, .q = {}, .gains = {}};
  GANTRY_ASSIGN_OR_RETURN(const Activation dropped,
                          tape.Allocate({.rows = own.drops ? rows : 0, .cols = own.in}, dtype));
  GANTRY_ASSIGN_OR_RETURN(const Activation z,
                          tape.Allocate({.rows = rows, .cols = options.rank}, dtype));
  GANTRY_ASSIGN_OR_RETURN(const Activation q,
                          tape.Allocate({.rows = is_dora ? rows : 0, .cols = own.out}, dtype));
  GANTRY_ASSIGN_OR_RETURN(const Activation gains,
                          tape.Allocate({.rows = is_dora ? 2 : 0, .cols = own.out}, DType::kF32));
  GANTRY_ASSIGN_OR_RETURN(
      const ArenaBuffer workspace,
      tape.AllocateWorkspace(is_dora ? LowRankWorkspace(own.w_shape()) : Bytes(0)));
  const ParameterList parameters = ParametersOf(adapter);
  GANTRY_RETURN_IF_ERROR(tape.Forward(kName, parameters, [&](const LeasedParameters& leased) {
    return RunForward(tape.context().kernels, own, leased,
                      {.x = input, .dropped = dropped, .y = value, .z = z, .q = q, .gains = gains},
                      SpanOf(workspace));
  }));
  saved.z = tape.Save(z);
  saved.q = tape.Save(q);
  saved.gains = tape.Save(gains);
  Var output = tape.MakeVar(std::move(value), {&x, &y}, parameters);
  if (output.requires_gradient()) {
    tape.Record(std::make_unique<LoraNode>(
        own, std::move(saved),
        LoraNode::Cells{.x = x.gradient(), .y = y.gradient(), .output = output.gradient()}));
  }
  return output;
}

}  // namespace gantry
