#include "trainer/nn/swiglu.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/swiglu.h"

namespace gantry {
namespace {

class SwiGluNode final : public Node {
 public:
  SwiGluNode(Activation gate_up, GradientCellPtr input, GradientCellPtr output)
      : gate_up_(std::move(gate_up)), input_(std::move(input)), output_(std::move(output)) {}

  absl::Status Backward(Tape& tape) override {
    const Activation grad = Tape::TakeGradient(output_);
    if (!grad.has_memory()) return absl::OkStatus();
    Activation grad_input;
    if (!gate_up_.unique()) {
      GANTRY_ASSIGN_OR_RETURN(grad_input, tape.Allocate(gate_up_.shape(), gate_up_.dtype()));
    } else {
      grad_input = gate_up_;
    }
    GANTRY_RETURN_IF_ERROR(tape.BackwardKernels("swiglu", {}, [&](const LeasedParameters&) {
      const int64_t channels = grad.cols();
      const ConstMatrixView saved = gate_up_.matrix();
      const MatrixView result = grad_input.matrix();
      SwiGluBackward(tape.context().kernels, {.gate = saved.Columns(0, channels),
                                              .up = saved.Columns(channels, channels),
                                              .grad_activated = grad.matrix(),
                                              .grad_gate = result.Columns(0, channels),
                                              .grad_up = result.Columns(channels, channels)});
      return absl::OkStatus();
    }));
    gate_up_ = Activation();
    return tape.Contribute(input_, std::move(grad_input));
  }

 private:
  Activation gate_up_;
  GradientCellPtr input_;
  GradientCellPtr output_;
};

}  // namespace

absl::StatusOr<Var> SwiGlu(Tape& tape, const Var& gate_up) {
  const Activation& input = gate_up.value();
  GANTRY_CHECK_EQ(input.cols() % 2, 0);
  const int64_t channels = input.cols() / 2;
  Activation saved = tape.Save(input);
  GANTRY_ASSIGN_OR_RETURN(Activation activated,
                          tape.Allocate({.rows = input.rows(), .cols = channels}, input.dtype()));
  GANTRY_RETURN_IF_ERROR(tape.Forward("swiglu", {}, [&](const LeasedParameters&) {
    const ConstMatrixView both = input.matrix();
    SwiGluForward(tape.context().kernels, {.gate = both.Columns(0, channels),
                                           .up = both.Columns(channels, channels),
                                           .activated = activated.matrix()});
    return absl::OkStatus();
  }));
  Var output = tape.MakeVar(std::move(activated), {&gate_up}, {});
  if (output.requires_gradient()) {
    tape.Record(
        std::make_unique<SwiGluNode>(std::move(saved), gate_up.gradient(), output.gradient()));
  }
  return output;
}

}  // namespace gantry
