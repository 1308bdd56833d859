#include "trainer/autograd/testing/toy_operator.h"

#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "kernels/views.h"

namespace gantry {
namespace {

constexpr MatrixShape kShape{.rows = 1, .cols = kToyElements};

void AddProduct(const float* a, const float* b, float* sum, Accumulate accumulate) {
  for (int64_t i = 0; i < kToyElements; ++i) {
    sum[i] = (accumulate == Accumulate::kAdd ? sum[i] : 0.0F) + a[i] * b[i];
  }
}

class ToyNode final : public Node {
 public:
  ToyNode(Activation x, const Parameter& weight, GradientCellPtr input, GradientCellPtr output,
          ToyCounts& counts)
      : x_(std::move(x)),
        weight_(weight),
        input_(std::move(input)),
        output_(std::move(output)),
        counts_(counts) {}

  absl::Status Backward(Tape& tape) override {
    const Activation grad_y = Tape::TakeGradient(output_);
    if (!grad_y.has_memory()) return absl::OkStatus();
    GradientTarget grad_x{.activation = {}, .accumulate = Accumulate::kOverwrite};
    if (input_ != nullptr) {
      GANTRY_ASSIGN_OR_RETURN(grad_x, tape.TargetOf(input_, kShape));
    }
    const BackwardUse use{weight_, input_ == nullptr ? BackwardRead::kNone : BackwardRead::kValue};
    return tape.BackwardKernels("toy", {&use, 1}, [&](const LeasedParameters& leased) {
      ++counts_.backward;
      const float* grad = grad_y.flat().As<float>();
      if (leased.HasGradient(0)) {
        AddProduct(grad, x_.flat().As<float>(), leased.Gradient(0, kShape).Flat().As<float>(),
                   leased.GradientAccumulate(0));
      }
      if (input_ != nullptr) {
        AddProduct(grad, leased.Value(0, kShape).Flat().As<float>(),
                   grad_x.activation.flat().As<float>(), grad_x.accumulate);
      }
      return counts_.backward_error;
    });
  }

 private:
  Activation x_;
  Parameter weight_;
  GradientCellPtr input_;
  GradientCellPtr output_;
  ToyCounts& counts_;
};

}  // namespace

absl::StatusOr<Var> Toy(Tape& tape, const Var& x, const Parameter& weight, ToyCounts& counts) {
  const Activation& input = x.value();
  Activation saved = tape.Save(input);
  GANTRY_ASSIGN_OR_RETURN(Activation y, tape.Allocate(kShape, DType::kF32));
  GANTRY_RETURN_IF_ERROR(tape.Forward("toy", {&weight, 1}, [&](const LeasedParameters& leased) {
    ++counts.forward;
    AddProduct(input.flat().As<float>(), leased.Value(0, kShape).Flat().As<float>(),
               y.flat().As<float>(), Accumulate::kOverwrite);
    return counts.forward_error;
  }));
  Var output = tape.MakeVar(std::move(y), {&x}, {&weight, 1});
  if (output.requires_gradient()) {
    tape.Record(std::make_unique<ToyNode>(std::move(saved), weight, x.gradient(), output.gradient(),
                                          counts));
  }
  return output;
}

}  // namespace gantry
