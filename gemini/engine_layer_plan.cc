// How layers are saved, as part of the movement plan: chosen on the step that keeps all, then
// planned as the step that follows from the choice.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "gemini/engine_impl.h"
#include "placement_policy/planner.h"
#include "placement_policy/training_problem.h"

namespace gantry {
namespace {

LayerSaving SavingOf(ActivationPlace place) {
  switch (place) {
    case ActivationPlace::kKeep:
      return LayerSaving::kKeep;
    case ActivationPlace::kRecompute:
      return LayerSaving::kRecompute;
    case ActivationPlace::kHost:
    case ActivationPlace::kFile:
      break;
  }
  return LayerSaving::kMove;
}

}  // namespace

// Instead of blocks of their own, layers that move have activations from their creation to their
// use.
PlannerStep EngineImpl::StepForPlanner(const CompiledPlan& plan) const {
  const CompiledStep& step = plan.step;
  PlannerStep result{.trace = TraceWithKeptSlots(step), .first_blocks = {}};
  Trace& trace = result.trace;
  trace.activations.clear();
  const int64_t first = layout_->chunk_count() * kStateKindCount;
  trace.uses.clear();
  for (Moment& moment : trace.moments) {
    const std::span<const BlockUse> uses = step.trace.uses_of(moment);
    moment.first_use = std::ssize(trace.uses);
    std::ranges::copy_if(uses, std::back_inserter(trace.uses),
                         [first](const BlockUse& use) { return use.block < first; });
    moment.use_count = std::ssize(trace.uses) - moment.first_use;
  }
  trace.block_slots.resize(static_cast<size_t>(first));
  for (size_t p = 0; p < step.layers.size(); ++p) {
    const CompiledStep::Layer& layer = step.layers[p];
    if (layer.saving != LayerSaving::kMove || layer.used < 0) continue;
    const SavedMemory::Pass& saved = plan.saved.passes[p];
    for (int32_t m = layer.created; m <= layer.used; ++m) {
      trace.moments[static_cast<size_t>(m)].activation_slots += saved.blocks;
    }
    trace.activations.push_back(
        {.created = layer.created, .used = layer.used, .slots = saved.blocks});
    result.first_blocks.push_back(static_cast<BlockIndex>(first + saved.first_block));
  }
  return result;
}

// The best of: layers as they are saved now, and as the planner would save them.
absl::StatusOr<MovementDecision> EngineImpl::PlanLayersAndMovement(CompiledPlan& plan,
                                                                   const Machine& machine,
                                                                   PlannerOptions planner) {
  std::vector<std::vector<LayerSaving>> candidates = {plan.savings};
  std::vector<LayerSaving> chosen = ChooseSavings(plan, machine, planner);
  if (chosen != plan.savings) candidates.push_back(std::move(chosen));
  planner.all_may_leave = true;
  std::optional<MovementDecision> best;
  absl::Status first_error;
  for (const std::vector<LayerSaving>& savings : candidates) {
    absl::Status status = Recompile(plan, savings);
    if (status.ok()) status = CheckPlans();
    if (!status.ok()) {
      first_error.Update(status);
      continue;
    }
    absl::StatusOr<MovementDecision> decision =
        PlanMovement(StepForPlanner(plan).trace, machine, planner);
    if (!decision.ok()) {
      first_error.Update(decision.status());
    } else if (!best.has_value() || decision->predicted.elapsed < best->predicted.elapsed) {
      best = *std::move(decision);
      chosen = plan.savings;
    }
  }
  GANTRY_RETURN_IF_ERROR(Recompile(plan, best.has_value() ? chosen : candidates.front()));
  GANTRY_RETURN_IF_ERROR(CheckPlans());
  if (!best.has_value()) return first_error;
  return *std::move(best);
}

// As the planner would save the layers whose saving is the plan's; as now where it finds nothing.
std::vector<LayerSaving> EngineImpl::ChooseSavings(const CompiledPlan& plan, const Machine& machine,
                                                   PlannerOptions planner) const {
  std::vector<LayerSaving> savings = plan.savings;
  if (plan.records == nullptr) return savings;
  const CompiledStep& kept = plan.kept == nullptr ? plan.step : *plan.kept;
  Trace trace = TraceWithKeptSlots(kept);
  trace.activations.clear();
  std::vector<size_t> passes;  // by activation
  for (size_t a = 0; a < kept.remakings.size(); ++a) {
    const int64_t pass = kept.remakings[a].pass;
    if (pass < 0) continue;
    const auto p = static_cast<size_t>(pass);
    if (plan.records->kept.layers[p].wanted != LayerSaving::kPlanned) continue;
    trace.activations.push_back(kept.trace.activations[a]);
    passes.push_back(p);
  }
  if (passes.empty()) return savings;
  planner.may_leave = CanMoveActivations();
  planner.may_compute_again = plan.records->again.has_value();
  const absl::StatusOr<MovementDecision> decision = PlanMovement(trace, machine, planner);
  if (!decision.ok()) return savings;
  const std::vector<ActivationPlace>& places = decision->choices.activations;
  for (size_t a = 0; a < passes.size(); ++a) {
    savings[passes[a]] = places.empty() ? LayerSaving::kKeep : SavingOf(places[a]);
  }
  return savings;
}

// Whether the budgets hold for all steps as they are compiled now, and what they need.
absl::Status EngineImpl::CheckPlans() {
  std::vector<const CompiledStep*> steps;
  moved_blocks_ = 0;
  for (const auto& [key, plan] : plans_) {
    steps.push_back(&plan.step);
    moved_blocks_ = std::max(moved_blocks_, plan.step.moved_blocks);
  }
  BudgetInput input = MakeBudgetInput();
  input.steps = steps;
  const BudgetNeed need = LeastBudget(input);
  activation_slots_ = need.activation_slots;
  return CheckBudget(input, need);
}

}  // namespace gantry
