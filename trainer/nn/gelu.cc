#include "trainer/nn/gelu.h"

#include <memory>
#include <utility>

#include "base/status_macros.h"

namespace gantry {
namespace {

class GeluNode final : public Node {
 public:
  GeluNode(GeluForm form, Activation x, GradientCellPtr input, GradientCellPtr output)
      : form_(form), x_(std::move(x)), input_(std::move(input)), output_(std::move(output)) {}

  absl::Status Backward(Tape& tape) override {
    const Activation grad = Tape::TakeGradient(output_);
    if (!grad.has_memory()) return absl::OkStatus();
    Activation grad_x;
    if (!x_.unique()) {
      GANTRY_ASSIGN_OR_RETURN(grad_x, tape.Allocate(x_.shape(), x_.dtype()));
    } else {
      grad_x = x_;
    }
    GANTRY_RETURN_IF_ERROR(tape.BackwardKernels("gelu", {}, [&](const LeasedParameters&) {
      GeluBackward(tape.context().kernels, {.form = form_,
                                            .x = x_.matrix(),
                                            .grad_activated = grad.matrix(),
                                            .grad_x = grad_x.matrix()});
      return absl::OkStatus();
    }));
    x_ = Activation();
    return tape.Contribute(input_, std::move(grad_x));
  }

 private:
  GeluForm form_;
  Activation x_;
  GradientCellPtr input_;
  GradientCellPtr output_;
};

}  // namespace

absl::StatusOr<Var> Gelu(Tape& tape, const Var& x, GeluForm form) {
  const Activation& input = x.value();
  Activation saved = tape.Save(input);
  GANTRY_ASSIGN_OR_RETURN(Activation activated, tape.Allocate(input.shape(), input.dtype()));
  GANTRY_RETURN_IF_ERROR(tape.Forward("gelu", {}, [&](const LeasedParameters&) {
    GeluForward(tape.context().kernels,
                {.form = form, .x = input.matrix(), .activated = activated.matrix()});
    return absl::OkStatus();
  }));
  Var output = tape.MakeVar(std::move(activated), {&x}, {});
  if (output.requires_gradient()) {
    tape.Record(
        std::make_unique<GeluNode>(form, std::move(saved), x.gradient(), output.gradient()));
  }
  return output;
}

}  // namespace gantry
