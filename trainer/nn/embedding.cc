#include "trainer/nn/embedding.h"

#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "kernels/embedding.h"

namespace gantry {
namespace {

constexpr std::string_view kName = "embedding";

class EmbeddingNode final : public Node {
 public:
  EmbeddingNode(std::span<const int32_t> tokens, const EmbeddingTable& table,
                GradientCellPtr output)
      : tokens_(tokens), table_(table), output_(std::move(output)) {}

  absl::Status Backward(Tape& tape) override {
    const Activation grad = Tape::TakeGradient(output_);
    if (!grad.has_memory()) return absl::OkStatus();
    const auto count = static_cast<int64_t>(tokens_.size());
    GANTRY_ASSIGN_OR_RETURN(const ArenaBuffer workspace,
                            tape.AllocateWorkspace(EmbeddingBackwardWorkspace(count)));
    const BackwardUse use{table_.parameter, BackwardRead::kNone};
    return tape.BackwardKernels(kName, {&use, 1}, [&](const LeasedParameters& parameters) {
      EmbeddingBackward(tape.context().kernels, {.tokens = tokens_,
                                                 .grad_embedded = grad.matrix(),
                                                 .grad_table = parameters.Gradient(0, table_.shape),
                                                 .accumulate = parameters.GradientAccumulate(0),
                                                 .workspace = SpanOf(workspace)});
      return absl::OkStatus();
    });
  }

 private:
  std::span<const int32_t> tokens_;
  EmbeddingTable table_;
  GradientCellPtr output_;
};

}  // namespace

absl::StatusOr<Var> Embedding(Tape& tape, std::span<const int32_t> tokens,
                              const EmbeddingTable& table) {
  GANTRY_ASSIGN_OR_RETURN(
      Activation embedded,
      tape.Allocate({.rows = static_cast<int64_t>(tokens.size()), .cols = table.shape.cols},
                    tape.context().compute_dtype));
  GANTRY_RETURN_IF_ERROR(
      tape.Forward(kName, {&table.parameter, 1}, [&](const LeasedParameters& parameters) {
        EmbeddingForward(tape.context().kernels, {.tokens = tokens,
                                                  .table = parameters.Value(0, table.shape),
                                                  .embedded = embedded.matrix()});
        return absl::OkStatus();
      }));
  Var output = tape.MakeVar(std::move(embedded), {}, {&table.parameter, 1});
  if (output.requires_gradient()) {
    tape.Record(std::make_unique<EmbeddingNode>(tokens, table, output.gradient()));
  }
  return output;
}

}  // namespace gantry
