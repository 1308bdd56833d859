#include "trainer/nn/token_log_probability.h"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "kernels/cross_entropy_head.h"

namespace gantry {
namespace {

constexpr std::string_view kName = "head";

std::span<float> FloatsOf(const Activation& saved) {
  return {saved.flat().As<float>(), static_cast<size_t>(saved.rows())};
}

HeadShape ShapeOf(const Activation& hidden, const HeadWeight& weight) {
  return {.tokens = hidden.rows(), .channels = hidden.cols(), .vocabulary = weight.shape.rows};
}

class TokenLogProbabilityNode final : public Node {
 public:
  struct Saved {
    Activation hidden;
    Activation log_sum_exp;
  };
  TokenLogProbabilityNode(const HeadWeight& weight, const ScoredTokens& tokens, Saved saved,
                          GradientCellPtr input)
      : weight_(weight), tokens_(tokens), saved_(std::move(saved)), input_(std::move(input)) {}

  absl::Status Backward(Tape& tape) override {
    const Activation& hidden = saved_.hidden;
    GANTRY_ASSIGN_OR_RETURN(Activation grad_hidden, tape.Allocate(hidden.shape(), hidden.dtype()));
    {
      GANTRY_ASSIGN_OR_RETURN(
          const ArenaBuffer workspace,
          tape.AllocateWorkspace(TokenLogProbabilitiesBackwardWorkspace(
              ShapeOf(hidden, weight_), {.x = hidden.dtype(), .grad_x = hidden.dtype()})));
      const BackwardUse use{weight_.parameter, BackwardRead::kValue};
      GANTRY_RETURN_IF_ERROR(
          tape.BackwardKernels(kName, {&use, 1}, [&](const LeasedParameters& parameters) {
            return RunKernels(tape.context().kernels, parameters, grad_hidden, workspace);
          }));
    }
    if (input_ == nullptr) return absl::OkStatus();
    return tape.Contribute(input_, std::move(grad_hidden));
  }

 private:
  absl::Status RunKernels(const KernelContext& kernels, const LeasedParameters& parameters,
                          const Activation& grad_hidden, const ArenaBuffer& workspace) const {
    TokenLogProbabilitiesBackwardArgs args{.x = saved_.hidden.matrix(),
                                           .weight = parameters.Value(0, weight_.shape),
                                           .targets = tokens_.targets,
                                           .log_sum_exp = FloatsOf(saved_.log_sum_exp),
                                           .grad_log_probabilities = tokens_.grad_log_probabilities,
                                           .grad_x = grad_hidden.matrix(),
                                           .grad_weight = std::nullopt,
                                           .accumulate = Accumulate::kOverwrite,
                                           .workspace = SpanOf(workspace)};
    if (parameters.HasGradient(0)) {
      args.grad_weight = parameters.Gradient(0, weight_.shape);
      args.accumulate = parameters.GradientAccumulate(0);
    }
    return TokenLogProbabilitiesBackward(kernels, args);
  }

  HeadWeight weight_;
  ScoredTokens tokens_;
  Saved saved_;
  GradientCellPtr input_;
};

}  // namespace

absl::Status TokenLogProbability(Tape& tape, const Var& hidden, const HeadWeight& weight,
                                 const ScoredTokens& tokens) {
  const Activation& x = hidden.value();
  const auto count = static_cast<size_t>(x.rows());
  GANTRY_CHECK_EQ(tokens.targets.size(), count);
  GANTRY_CHECK_EQ(tokens.log_probabilities.size(), count);
  GANTRY_CHECK(tape.mode() == Tape::Mode::kEvaluation ||
               tokens.grad_log_probabilities.size() == count);
  TokenLogProbabilityNode::Saved saved{.hidden = tape.Save(x), .log_sum_exp = {}};
  GANTRY_ASSIGN_OR_RETURN(const Activation log_sum_exp,
                          tape.Allocate({.rows = x.rows(), .cols = 1}, DType::kF32));
  GANTRY_ASSIGN_OR_RETURN(
      const ArenaBuffer workspace,
      tape.AllocateWorkspace(TokenLogProbabilitiesWorkspace(ShapeOf(x, weight))));
  GANTRY_RETURN_IF_ERROR(
      tape.Forward(kName, {&weight.parameter, 1}, [&](const LeasedParameters& parameters) {
        return TokenLogProbabilities(tape.context().kernels,
                                     {.x = x.matrix(),
                                      .weight = parameters.Value(0, weight.shape),
                                      .targets = tokens.targets,
                                      .log_probabilities = tokens.log_probabilities,
                                      .log_sum_exp = FloatsOf(log_sum_exp),
                                      .workspace = SpanOf(workspace)});
      }));
  saved.log_sum_exp = tape.Save(log_sum_exp);
  if (hidden.requires_gradient() || weight.parameter.trainable()) {
    tape.Record(std::make_unique<TokenLogProbabilityNode>(weight, tokens, std::move(saved),
                                                          hidden.gradient()));
  }
  return absl::OkStatus();
}

}  // namespace gantry
