#include "trainer/nn/residual_add.h"

#include <memory>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/elementwise.h"

namespace gantry {
namespace {

class ResidualAddNode final : public Node {
 public:
  struct Cells {
    GradientCellPtr a;  // null when no gradient flows to it
    GradientCellPtr b;
    GradientCellPtr output;
  };
  explicit ResidualAddNode(Cells cells) : cells_(std::move(cells)) {}

  absl::Status Backward(Tape& tape) override {
    Activation grad = Tape::TakeGradient(cells_.output);
    if (!grad.has_memory()) return absl::OkStatus();
    if (cells_.a != nullptr) GANTRY_RETURN_IF_ERROR(tape.Contribute(cells_.a, grad));
    if (cells_.b == nullptr) return absl::OkStatus();
    return tape.Contribute(cells_.b, std::move(grad));
  }

 private:
  Cells cells_;
};

}  // namespace

absl::StatusOr<Var> ResidualAdd(Tape& tape, const Var& a, const Var& b) {
  GANTRY_CHECK(a.value().shape() == b.value().shape());
  GANTRY_ASSIGN_OR_RETURN(Activation sum, tape.Allocate(a.value().shape(), a.value().dtype()));
  GANTRY_RETURN_IF_ERROR(tape.Forward("residual_add", {}, [&](const LeasedParameters&) {
    Add(tape.context().kernels, {.a = a.value().flat(), .b = b.value().flat(), .sum = sum.flat()});
    return absl::OkStatus();
  }));
  Var output = tape.MakeVar(std::move(sum), {&a, &b}, {});
  if (output.requires_gradient()) {
    tape.Record(std::make_unique<ResidualAddNode>(
        ResidualAddNode::Cells{.a = a.gradient(), .b = b.gradient(), .output = output.gradient()}));
  }
  return output;
}

}  // namespace gantry
