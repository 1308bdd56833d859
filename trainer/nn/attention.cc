#include "trainer/nn/attention.h"

#include <cmath>
#include <memory>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/dtype.h"
#include "base/status_macros.h"

namespace gantry {
namespace {

constexpr std::string_view kName = "attention";

std::span<float> LogSumExpOf(const Activation& saved) {
  return {saved.flat().As<float>(), static_cast<size_t>(saved.rows() * saved.cols())};
}

void Rotate(const KernelContext& kernels, const MatrixView& qkv,
            const SelfAttentionOptions& options, RopeDirection direction) {
  if (options.rope == nullptr) return;
  const QueryKeyValue<MatrixView> split = SplitQkv(qkv, options.shape);
  for (const MatrixView& heads : {split.query, split.key}) {
    ApplyRope(kernels, {.heads = heads,
                        .table = options.rope,
                        .tokens_per_sequence = options.shape.tokens,
                        .position_offset = 0,
                        .direction = direction,
                        .positions = options.positions});
  }
}

class SelfAttentionNode final : public Node {
 public:
  struct Saved {
    Activation qkv;
    Activation out;
    Activation log_sum_exp;
  };
  SelfAttentionNode(const SelfAttentionOptions& options, Saved saved, GradientCellPtr input,
                    GradientCellPtr output)
      : options_(options),
        saved_(std::move(saved)),
        input_(std::move(input)),
        output_(std::move(output)) {}

  absl::Status Backward(Tape& tape) override {
    const Activation grad_out = Tape::TakeGradient(output_);
    if (!grad_out.has_memory()) return absl::OkStatus();
    const KernelContext& kernels = tape.context().kernels;
    GANTRY_ASSIGN_OR_RETURN(Activation grad_qkv,
                            tape.Allocate(saved_.qkv.shape(), saved_.qkv.dtype()));
    GANTRY_ASSIGN_OR_RETURN(const ArenaBuffer workspace,
                            tape.AllocateWorkspace(AttentionBackwardWorkspace(
                                options_.shape, kernels.team->threads())));
    GANTRY_RETURN_IF_ERROR(tape.BackwardKernels(kName, {}, [&](const LeasedParameters&) {
      const QueryKeyValue<MatrixView> saved = SplitQkv(saved_.qkv.matrix(), options_.shape);
      const QueryKeyValue<MatrixView> grad = SplitQkv(grad_qkv.matrix(), options_.shape);
      AttentionBackward(kernels, {.shape = options_.shape,
                                  .scale = AttentionScale(options_.shape),
                                  .q = saved.query,
                                  .k = saved.key,
                                  .v = saved.value,
                                  .out = saved_.out.matrix(),
                                  .log_sum_exp = LogSumExpOf(saved_.log_sum_exp),
                                  .grad_out = grad_out.matrix(),
                                  .grad_q = grad.query,
                                  .grad_k = grad.key,
                                  .grad_v = grad.value,
                                  .workspace = SpanOf(workspace),
                                  .documents = options_.documents});
      Rotate(kernels, grad_qkv.matrix(), options_, RopeDirection::kInverse);
      return absl::OkStatus();
    }));
    return tape.Contribute(input_, std::move(grad_qkv));
  }

 private:
  SelfAttentionOptions options_;
  Saved saved_;
  GradientCellPtr input_;
  GradientCellPtr output_;
};

}  // namespace

float AttentionScale(const AttentionShape& shape) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): the value is consumed
absl::StatusOr<Var> SelfAttention(Tape& tape, Var qkv, const SelfAttentionOptions& options) {
  const AttentionShape& shape = options.shape;
  const Activation& input = qkv.value();
  GANTRY_CHECK(!input.has_memory() || input.unique()) << "the projections are held elsewhere";
  GANTRY_CHECK_EQ(input.rows(), shape.batch * shape.tokens);
  GANTRY_CHECK_EQ(options.documents.empty(), options.positions.empty());
  const KernelContext& kernels = tape.context().kernels;
  SelfAttentionNode::Saved saved{.qkv = tape.Save(input), .out = {}, .log_sum_exp = {}};
  GANTRY_ASSIGN_OR_RETURN(
      Activation out,
      tape.Allocate({.rows = input.rows(), .cols = shape.query_heads * shape.head_dim},
                    input.dtype()));
  GANTRY_ASSIGN_OR_RETURN(
      const Activation log_sum_exp,
      tape.Allocate({.rows = shape.batch * shape.query_heads, .cols = shape.tokens}, DType::kF32));
  GANTRY_ASSIGN_OR_RETURN(
      const ArenaBuffer workspace,
      tape.AllocateWorkspace(AttentionForwardWorkspace(shape, kernels.team->threads())));
  GANTRY_RETURN_IF_ERROR(tape.Forward(kName, {}, [&](const LeasedParameters&) {
    Rotate(kernels, input.matrix(), options, RopeDirection::kForward);
    const QueryKeyValue<MatrixView> split = SplitQkv(input.matrix(), shape);
    AttentionForward(kernels, {.shape = shape,
                               .scale = AttentionScale(shape),
                               .q = split.query,
                               .k = split.key,
                               .v = split.value,
                               .out = out.matrix(),
                               .log_sum_exp = LogSumExpOf(log_sum_exp),
                               .workspace = SpanOf(workspace),
                               .documents = options.documents});
    return absl::OkStatus();
  }));
  saved.out = tape.Save(out);
  saved.log_sum_exp = tape.Save(log_sum_exp);
  Var output = tape.MakeVar(std::move(out), {&qkv}, {});
  if (output.requires_gradient()) {
    tape.Record(std::make_unique<SelfAttentionNode>(options, std::move(saved), qkv.gradient(),
                                                    output.gradient()));
  }
  return output;
}

}  // namespace gantry
