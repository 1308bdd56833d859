#include "trainer/nn/query_key_norm.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/rms_norm.h"

namespace gantry {
namespace {

constexpr std::string_view kName = "query_key_norm";

// The queries (0) or the keys (1) of a fused activation, and what belongs to them.
struct Part {
  int64_t column;
  int64_t heads;
  RmsNormWeight weight;
};
std::array<Part, 2> PartsOf(const QueryKeyNormOptions& options) {
  return {Part{.column = 0, .heads = options.query_heads, .weight = options.query},
          Part{.column = options.query_heads * options.head_dim,
               .heads = options.kv_heads,
               .weight = options.key}};
}

std::array<Parameter, 2> ParametersOf(const QueryKeyNormOptions& options) {
  return {options.query.parameter, options.key.parameter};
}

// [heads, rows] of both parts, the queries' first.
std::span<float> RstdOf(const Activation& rstd, const QueryKeyNormOptions& options, int part) {
  const int64_t rows = rstd.cols();
  float* first = rstd.flat().As<float>();
  if (part == 1)
    return {first + options.query_heads * rows, static_cast<size_t>(options.kv_heads * rows)};
  return {first, static_cast<size_t>(options.query_heads * rows)};
}

class QueryKeyNormNode final : public Node {
 public:
  struct Saved {
    Activation heads;  // queries and keys before the norm
    Activation rstd;
  };
  QueryKeyNormNode(const QueryKeyNormOptions& options, Saved saved, GradientCellPtr input,
                   GradientCellPtr output)
      : options_(options),
        saved_(std::move(saved)),
        input_(std::move(input)),
        output_(std::move(output)) {}

  absl::Status Backward(Tape& tape) override {
    Activation grad = Tape::TakeGradient(output_);
    if (!grad.has_memory()) return absl::OkStatus();
    if (!grad.unique()) {
      GANTRY_ASSIGN_OR_RETURN(grad, Copied(tape, grad));
    }
    const MatrixShape head_rows{.rows = grad.rows(), .cols = options_.head_dim};
    GANTRY_ASSIGN_OR_RETURN(const ArenaBuffer workspace,
                            tape.AllocateWorkspace(RmsNormBackwardWorkspace(head_rows)));
    const std::array<BackwardUse, 2> uses = {
        BackwardUse{options_.query.parameter, BackwardRead::kValue},
        BackwardUse{options_.key.parameter, BackwardRead::kValue}};
    GANTRY_RETURN_IF_ERROR(
        tape.BackwardKernels(kName, uses, [&](const LeasedParameters& parameters) {
          for (int i = 0; i < 2; ++i) {
            RunPart(tape.context().kernels, parameters, i, grad, SpanOf(workspace));
          }
          return absl::OkStatus();
        }));
    saved_ = {};
    if (input_ == nullptr) return absl::OkStatus();
    return tape.Contribute(input_, std::move(grad));
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

  // The gradient of one part, in place.
  void RunPart(const KernelContext& kernels, const LeasedParameters& parameters, int i,
               const Activation& grad, std::span<std::byte> workspace) const {
    const Part part = PartsOf(options_)[static_cast<size_t>(i)];
    const int64_t cols = part.heads * options_.head_dim;
    const MatrixShape row{.rows = 1, .cols = options_.head_dim};
    const MatrixView columns = grad.matrix().Columns(part.column, cols);
    RmsNormBackwardArgs args{.h = saved_.heads.matrix().Columns(part.column, cols),
                             .weight = parameters.Value(i, row).Flat(),
                             .rstd = RstdOf(saved_.rstd, options_, i),
                             .grad_y = columns,
                             .grad_residual = std::nullopt,
                             .grad_h = columns,
                             .grad_weight = std::nullopt,
                             .accumulate = Accumulate::kOverwrite,
                             .workspace = workspace,
                             .groups = part.heads};
    if (parameters.HasGradient(i)) {
      args.grad_weight = parameters.Gradient(i, row).Flat();
      args.accumulate = parameters.GradientAccumulate(i);
    }
    RmsNormBackward(kernels, args);
  }

  QueryKeyNormOptions options_;
  Saved saved_;
  GradientCellPtr input_;
  GradientCellPtr output_;
};

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): the value is consumed
absl::StatusOr<Var> QueryKeyNorm(Tape& tape, Var qkv, const QueryKeyNormOptions& options) {
  Activation value = qkv.value();
  const GradientCellPtr input = qkv.gradient();
  const int64_t heads = options.query_heads + options.kv_heads;
  const int64_t cols = heads * options.head_dim;
  GANTRY_CHECK_EQ(value.cols(), cols + options.kv_heads * options.head_dim);
  const bool training = tape.mode() == Tape::Mode::kTraining;
  const int64_t kept_rows = training ? value.rows() : 0;
  GANTRY_ASSIGN_OR_RETURN(const Activation before,
                          tape.Allocate({.rows = kept_rows, .cols = cols}, value.dtype()));
  GANTRY_ASSIGN_OR_RETURN(const Activation rstd,
                          tape.Allocate({.rows = heads, .cols = value.rows()}, DType::kF32));
  const std::array<Parameter, 2> parameters = ParametersOf(options);
  const KernelContext& kernels = tape.context().kernels;
  GANTRY_RETURN_IF_ERROR(tape.Forward(kName, parameters, [&](const LeasedParameters& leased) {
    const MatrixView both = value.matrix().Columns(0, cols);
    if (training) CopyRows(kernels, {.from = both, .to = before.matrix()});
    for (int i = 0; i < 2; ++i) {
      const Part part = PartsOf(options)[static_cast<size_t>(i)];
      const MatrixView columns = both.Columns(part.column, part.heads * options.head_dim);
      RmsNormForward(kernels,
                     {.x = columns,
                      .residual = std::nullopt,
                      .sum = std::nullopt,
                      .weight = leased.Value(i, {.rows = 1, .cols = options.head_dim}).Flat(),
                      .epsilon = part.weight.epsilon,
                      .y = columns,
                      .rstd = RstdOf(rstd, options, i),
                      .groups = part.heads});
    }
    return absl::OkStatus();
  }));
  QueryKeyNormNode::Saved saved{.heads = tape.Save(before), .rstd = tape.Save(rstd)};
  Var output = tape.MakeVar(std::move(value), {&qkv}, parameters);
  if (output.requires_gradient()) {
    tape.Record(
        std::make_unique<QueryKeyNormNode>(options, std::move(saved), input, output.gradient()));
  }
  return output;
}

}  // namespace gantry
