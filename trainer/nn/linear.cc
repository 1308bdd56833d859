#include "trainer/nn/linear.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/column_sums.h"
#include "kernels/matmul.h"

namespace gantry {
namespace {

using WeightList = absl::InlinedVector<LinearWeight, 3>;

// Each weight, followed by its bias if it has one: the order of a lease.
template <typename Weights>
absl::InlinedVector<Parameter, 6> ParametersOf(const Weights& weights) {
  absl::InlinedVector<Parameter, 6> parameters;
  for (const LinearWeight& weight : weights) {
    parameters.push_back(weight.parameter);
    if (weight.bias.has_value()) parameters.push_back(*weight.bias);
  }
  return parameters;
}

class LinearNode final : public Node {
 public:
  struct Cells {
    GradientCellPtr input;  // null when no gradient flows to it
    GradientCellPtr output;
  };
  // `x` is empty when no weight is trainable.
  LinearNode(const LinearWeights& weights, Activation x, int64_t in_features, Cells cells)
      : name_(weights.name),
        weights_(weights.weights.begin(), weights.weights.end()),
        x_(std::move(x)),
        in_features_(in_features),
        cells_(std::move(cells)) {}

  absl::Status Backward(Tape& tape) override {
    const Activation grad_y = Tape::TakeGradient(cells_.output);
    if (!grad_y.has_memory()) return absl::OkStatus();
    GradientTarget grad_x{.activation = {}, .accumulate = Accumulate::kOverwrite};
    if (cells_.input != nullptr) {
      GANTRY_ASSIGN_OR_RETURN(
          grad_x, tape.TargetOf(cells_.input, {.rows = grad_y.rows(), .cols = in_features_}));
    }
    GANTRY_ASSIGN_OR_RETURN(const ArenaBuffer workspace,
                            tape.AllocateWorkspace(WorkspaceBytes(grad_y.rows())));
    const BackwardRead read = cells_.input != nullptr ? BackwardRead::kValue : BackwardRead::kNone;
    absl::InlinedVector<BackwardUse, 6> uses;
    for (const LinearWeight& weight : weights_) {
      uses.push_back({weight.parameter, read});
      if (weight.bias.has_value()) uses.push_back({*weight.bias, BackwardRead::kNone});
    }
    return tape.BackwardKernels(name_, uses, [&](const LeasedParameters& parameters) {
      return RunKernels(tape.context().kernels, parameters, grad_y, grad_x, SpanOf(workspace));
    });
  }

 private:
  // For the gradients of biases, one at a time.
  Bytes WorkspaceBytes(int64_t rows) const {
    Bytes bytes(0);
    for (const LinearWeight& weight : weights_) {
      if (!weight.bias.has_value() || !weight.bias->trainable()) continue;
      const MatrixShape shape{.rows = rows, .cols = weight.out_features};
      bytes = std::max(bytes, ColumnSumsWorkspace(shape));
    }
    return bytes;
  }

  absl::Status RunKernels(const KernelContext& kernels, const LeasedParameters& parameters,
                          const Activation& grad_y, const GradientTarget& grad_x,
                          std::span<std::byte> workspace) const {
    int64_t column = 0;
    int index = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      const MatrixShape shape{.rows = weights_[i].out_features, .cols = in_features_};
      const ConstMatrixView grad = grad_y.matrix().Columns(column, shape.rows);
      column += shape.rows;
      if (parameters.HasGradient(index)) {
        GANTRY_RETURN_IF_ERROR(
            LinearBackwardWeight(kernels, {.grad_y = grad,
                                           .x = x_.matrix(),
                                           .grad_weight = parameters.Gradient(index, shape),
                                           .accumulate = parameters.GradientAccumulate(index)}));
      }
      if (cells_.input != nullptr) {
        GANTRY_RETURN_IF_ERROR(LinearBackwardInput(
            kernels, {.grad_y = grad,
                      .weight = parameters.Value(index, shape),
                      .grad_x = grad_x.activation.matrix(),
                      .accumulate = i == 0 ? grad_x.accumulate : Accumulate::kAdd}));
      }
      ++index;
      if (!weights_[i].bias.has_value()) continue;
      if (parameters.HasGradient(index)) {
        const MatrixShape row{.rows = 1, .cols = shape.rows};
        ColumnSums(kernels, {.matrix = grad,
                             .sums = parameters.Gradient(index, row).Flat(),
                             .accumulate = parameters.GradientAccumulate(index),
                             .workspace = workspace});
      }
      ++index;
    }
    return absl::OkStatus();
  }

  std::string_view name_;
  WeightList weights_;
  Activation x_;
  int64_t in_features_;
  Cells cells_;
};

absl::Status RunForward(const KernelContext& kernels, const LeasedParameters& parameters,
                        std::span<const LinearWeight> weights, ConstMatrixView x, MatrixView y) {
  int64_t column = 0;
  int index = 0;
  for (const LinearWeight& weight : weights) {
    const MatrixShape shape{.rows = weight.out_features, .cols = x.cols};
    const MatrixView columns = y.Columns(column, shape.rows);
    const ConstMatrixView value = parameters.Value(index++, shape);
    column += shape.rows;
    Accumulate accumulate = Accumulate::kOverwrite;
    if (weight.bias.has_value()) {
      const MatrixShape row{.rows = 1, .cols = shape.rows};
      FillRows(kernels, {.row_values = parameters.Value(index++, row).Flat(), .rows = columns});
      accumulate = Accumulate::kAdd;
    }
    GANTRY_RETURN_IF_ERROR(Multiply(kernels, {.a = {.view = x, .transpose = Transpose::kNo},
                                              .b = {.view = value, .transpose = Transpose::kYes},
                                              .c = columns,
                                              .accumulate = accumulate}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Var> Linear(Tape& tape, const Var& x, const LinearWeights& weights) {
  GANTRY_CHECK(!weights.weights.empty()) << weights.name;
  const absl::InlinedVector<Parameter, 6> parameters = ParametersOf(weights.weights);
  int64_t out_features = 0;
  for (const LinearWeight& weight : weights.weights) out_features += weight.out_features;
  const Activation& input = x.value();
  const bool any_trainable = std::ranges::any_of(
      weights.weights, [](const LinearWeight& weight) { return weight.parameter.trainable(); });
  Activation saved = any_trainable ? tape.Save(input) : Activation();
  GANTRY_ASSIGN_OR_RETURN(Activation y, tape.Allocate({.rows = input.rows(), .cols = out_features},
                                                      tape.context().compute_dtype));
  GANTRY_RETURN_IF_ERROR(
      tape.Forward(weights.name, parameters, [&](const LeasedParameters& leased) {
        return RunForward(tape.context().kernels, leased, weights.weights, input.matrix(),
                          y.matrix());
      }));
  Var output = tape.MakeVar(std::move(y), {&x}, parameters);
  if (output.requires_gradient()) {
    tape.Record(std::make_unique<LinearNode>(
        weights, std::move(saved), input.cols(),
        LinearNode::Cells{.input = x.gradient(), .output = output.gradient()}));
  }
  return output;
}

}  // namespace gantry
