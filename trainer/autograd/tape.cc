#include "trainer/autograd/tape.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/check.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/elementwise.h"
#include "trainer/autograd/widened_tensor.h"

namespace gantry {
namespace {

std::optional<ParameterAccess> AccessOf(const BackwardUse& use) {
  const bool reads = use.read == BackwardRead::kValue;
  if (use.parameter.trainable()) {
    return reads ? ParameterAccess::kReadAndGradient : ParameterAccess::kGradient;
  }
  if (reads) return ParameterAccess::kRead;
  return std::nullopt;
}

}  // namespace

absl::Status Tape::Backward() {
  GANTRY_CHECK(recording()) << "Backward within an operator, or of an evaluation";
  GANTRY_RETURN_IF_ERROR(RunNodesDownTo(0));
  for (size_t i = 0; i < pending_uses_.size(); ++i) {
    if (std::exchange(pending_uses_[i], 0) > 0) {
      context_.store->GradientReady(TensorId(static_cast<int64_t>(i)));
    }
  }
  return absl::OkStatus();
}

absl::Status Tape::RunNodesDownTo(size_t count) {
  while (nodes_.size() > count) {
    const std::unique_ptr<Node> node = std::move(nodes_.back());
    nodes_.pop_back();
    GANTRY_RETURN_IF_ERROR(node->Backward(*this));
  }
  return absl::OkStatus();
}

absl::StatusOr<Activation> Tape::Allocate(MatrixShape shape, DType dtype) {
  if (skipping()) return Activation(shape, dtype);
  return Activation::Allocate(context_.store->arena(), shape, dtype);
}

absl::StatusOr<ArenaBuffer> Tape::AllocateWorkspace(Bytes bytes) {
  if (skipping()) return ArenaBuffer();
  return context_.store->arena().Allocate(bytes.count());
}

Var Tape::MakeVar(Activation value, std::initializer_list<const Var*> inputs,
                  std::span<const Parameter> parameters) const {
  const bool flows =
      std::ranges::any_of(inputs, [](const Var* input) { return input->requires_gradient(); }) ||
      std::ranges::any_of(parameters, &Parameter::trainable);
  if (mode_ == Mode::kEvaluation || !flows) return {std::move(value), nullptr};
  return {std::move(value), std::make_shared<GradientCell>()};
}

Activation Tape::Save(const Activation& value) {
  if (mode_ == Mode::kEvaluation) return {};
  ++scope_.saves;
  return recording() ? value : Activation();
}

void Tape::Record(std::unique_ptr<Node> node) {
  if (recording()) nodes_.push_back(std::move(node));
}

absl::Status Tape::Forward(std::string_view name, std::span<const Parameter> parameters,
                           Kernels kernels) {
  absl::InlinedVector<BackwardUse, Lease::kTensorsMax> reads;
  for (const Parameter& parameter : parameters) {
    CountUse(parameter);
    reads.push_back({{parameter.tensor, Trainability::kFrozen}, BackwardRead::kValue});
  }
  if (skipping()) return absl::OkStatus();
  const Phase phase = scope_.recomputes ? Phase::kBackward : Phase::kForward;
  return RunLeased(name, phase, reads, kernels);
}

absl::Status Tape::BackwardKernels(std::string_view name, std::span<const BackwardUse> uses,
                                   Kernels kernels) {
  GANTRY_RETURN_IF_ERROR(RunLeased(name, Phase::kBackward, uses, kernels));
  for (const BackwardUse& use : uses) StrikeUse(use.parameter);
  return absl::OkStatus();
}

absl::Status Tape::RunLeased(std::string_view name, Phase phase, std::span<const BackwardUse> uses,
                             Kernels kernels) {
  absl::InlinedVector<ParameterUse, Lease::kTensorsMax> wanted;
  absl::InlinedVector<int, Lease::kTensorsMax> positions;
  for (size_t i = 0; i < uses.size(); ++i) {
    const std::optional<ParameterAccess> access = AccessOf(uses[i]);
    if (!access.has_value()) continue;
    wanted.push_back({uses[i].parameter.tensor, *access});
    positions.push_back(static_cast<int>(i));
  }
  LeasedParameters parameters;
  if (wanted.empty()) return Run(parameters, kernels);
  GANTRY_ASSIGN_OR_RETURN(const Lease lease, context_.store->Acquire(wanted, name, phase));
  for (int i = 0; i < lease.size(); ++i) {
    if (HasHalves(lease[i])) return RunWidened(lease, positions, kernels);
    parameters.Set(positions[static_cast<size_t>(i)], lease[i]);
  }
  return Run(parameters, kernels);
}

absl::Status Tape::RunWidened(const Lease& lease, std::span<const int> positions, Kernels kernels) {
  absl::InlinedVector<WidenedTensor, Lease::kTensorsMax> widened;
  LeasedParameters parameters;
  for (int i = 0; i < lease.size(); ++i) {
    GANTRY_ASSIGN_OR_RETURN(WidenedTensor tensor,
                            WidenedTensor::Create(context_.store->arena(), lease[i]));
    parameters.Set(positions[static_cast<size_t>(i)], tensor.tensor());
    widened.push_back(std::move(tensor));
  }
  return Run(parameters, [&](const LeasedParameters& leased) {
    for (const WidenedTensor& tensor : widened) tensor.Load(*context_.kernels.team);
    GANTRY_RETURN_IF_ERROR(kernels(leased));
    for (const WidenedTensor& tensor : widened) tensor.Store(*context_.kernels.team);
    return absl::OkStatus();
  });
}

absl::Status Tape::Run(const LeasedParameters& parameters, Kernels kernels) {
  if (context_.store->dry_run()) return absl::OkStatus();
  return kernels(parameters);
}

void Tape::CountUse(const Parameter& parameter) {
  if (mode_ == Mode::kEvaluation || !scope_.counts || !parameter.trainable()) return;
  const auto index = static_cast<size_t>(parameter.tensor.value());
  if (pending_uses_.size() <= index) pending_uses_.resize(index + 1, 0);
  ++pending_uses_[index];
}

void Tape::StrikeUse(const Parameter& parameter) {
  if (!parameter.trainable()) return;
  const auto index = static_cast<size_t>(parameter.tensor.value());
  GANTRY_CHECK(index < pending_uses_.size() && pending_uses_[index] > 0)
      << parameter.tensor << " has more backward than forward uses";
  if (--pending_uses_[index] == 0) context_.store->GradientReady(parameter.tensor);
}

Activation Tape::TakeGradient(const GradientCellPtr& cell) {
  return cell == nullptr ? Activation() : std::exchange(cell->sum, Activation());
}

absl::StatusOr<GradientTarget> Tape::TargetOf(const GradientCellPtr& cell, MatrixShape shape) {
  GANTRY_CHECK(cell != nullptr);
  if (!cell->sum.has_memory()) {
    GANTRY_ASSIGN_OR_RETURN(cell->sum, Allocate(shape, context_.compute_dtype));
    return GradientTarget{cell->sum, Accumulate::kOverwrite};
  }
  GANTRY_CHECK(cell->sum.shape() == shape) << cell->sum.rows() << " x " << cell->sum.cols();
  if (!cell->sum.unique()) {
    const Activation shared = std::exchange(cell->sum, Activation());
    GANTRY_ASSIGN_OR_RETURN(cell->sum, Allocate(shape, context_.compute_dtype));
    GANTRY_RETURN_IF_ERROR(Run({}, [&](const LeasedParameters&) {
      Cast(context_.kernels, {.from = shared.flat(), .to = cell->sum.flat()});
      return absl::OkStatus();
    }));
  }
  return GradientTarget{cell->sum, Accumulate::kAdd};
}

absl::Status Tape::Contribute(const GradientCellPtr& cell, Activation contribution) {
  GANTRY_CHECK(cell != nullptr && contribution.has_memory());
  if (!cell->sum.has_memory()) {
    cell->sum = std::move(contribution);
    return absl::OkStatus();
  }
  GANTRY_ASSIGN_OR_RETURN(const GradientTarget target, TargetOf(cell, contribution.shape()));
  return Run({}, [&](const LeasedParameters&) {
    const VectorView sum = target.activation.flat();
    Add(context_.kernels, {.a = sum, .b = contribution.flat(), .sum = sum});
    return absl::OkStatus();
  });
}

}  // namespace gantry
