#include "benches/policies/policy_suite.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/check_fits.h"
#include "placement_policy/free_placement_bound.h"
#include "placement_policy/lower_bound.h"
#include "placement_policy/machine.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/planner.h"
#include "placement_policy/policy.h"
#include "placement_policy/policy_plan.h"
#include "placement_policy/synthetic_trace.h"
#include "placement_policy/trace.h"
#include "placement_policy/training_problem.h"

namespace gantry {
namespace {

// Of the sequences that a step consists of, unless the model's positions end before.
constexpr int64_t kSequenceLength = 2048;
constexpr std::string_view kPlanned = "planned";

absl::StatusOr<Trace> TraceOf(const SuiteModel& model, const MachineRates& rates, int64_t tokens) {
  if (const auto* const trace = std::get_if<Trace>(&model.step)) {
    GANTRY_RETURN_IF_ERROR(trace->Validate());
    return *trace;
  }
  const auto& shape = std::get<ModelShape>(model.step);
  const int64_t positions = shape.positions > 0 ? shape.positions : kSequenceLength;
  const int64_t length = std::min({tokens, positions, kSequenceLength});
  return SyntheticTrace(shape, {.sequences = std::max<int64_t>(tokens / length, 1),
                                .sequence_length = length,
                                .recomputation = Recomputation::kFull,
                                .flops_per_second = static_cast<double>(rates.flops_per_second)});
}

// Parameters, gradients and optimizer states: all blocks there are.
int64_t StateSlots(const Trace& trace) {
  int64_t slots = 0;
  for (const int8_t block : trace.block_slots) slots += block;
  return slots;
}

int64_t ShareOf(int64_t slots, double share) {
  return std::llround(static_cast<double>(slots) * share);
}

absl::StatusOr<Machine> MachineOf(const SuiteMachine& machine, const Trace& trace, double budget) {
  GANTRY_RETURN_IF_ERROR(machine.hardware.Validate());
  const int64_t state = StateSlots(trace);
  Machine result{.slot_bytes = trace.slot_bytes == Bytes(0) ? 1_MiB : trace.slot_bytes,
                 .device_slots = std::max<int64_t>(ShareOf(state, budget), 1),
                 .has_file_tier = machine.hardware.file_bytes > Bytes(0),
                 .unified = machine.hardware.unified,
                 .rates = machine.hardware.rates};
  if (!result.unified) {
    result.host_slots = machine.host_share.has_value()
                            ? ShareOf(state, *machine.host_share)
                            : machine.hardware.host_memory.count() / result.slot_bytes.count();
  }
  GANTRY_RETURN_IF_ERROR(result.Validate());
  return result;
}

// For policies that want to be told: the share of optimizer states that the host has no room for.
double SpilledStates(const Trace& trace, const Machine& machine) {
  const PlacementShape streamed = {.host_buffers = PolicyPlanOptions().host_buffers};
  int64_t states = 0;
  for (const TraceChunk& chunk : trace.chunks) states += UpdateFactsOf(trace, chunk).states;
  const int64_t room = HostRoomOf(trace, machine, streamed).states;
  if (machine.unified || !machine.has_file_tier || states == 0 || room >= states) return 0.0;
  return 1.0 - static_cast<double>(std::max<int64_t>(room, 0)) / static_cast<double>(states);
}

// What is done before the gradient norm is known.
enum class Norm { kWait, kIgnore };

absl::StatusOr<MovementDecision> Decide(std::string_view policy, const Trace& trace,
                                        const Machine& machine, Norm norm) {
  const bool wait_for_norm = norm == Norm::kWait;
  // The bounds hold for activations that stay.
  if (policy == kPlanned) {
    return PlanMovement(trace, machine,
                        {.wait_for_norm = wait_for_norm, .move_activations = false});
  }
  if (trace.chunks.empty()) {
    return InvalidArgument("the trace says of no chunk which blocks belong to it");
  }
  return PolicyPlan(policy, trace, machine,
                    {.fractions = {.spill_optimizer = SpilledStates(trace, machine)},
                     .wait_for_norm = wait_for_norm});
}

std::vector<int64_t> TokensOf(const PolicySuite& suite, const SuiteModel& model) {
  const auto* const trace = std::get_if<Trace>(&model.step);
  return trace == nullptr ? suite.tokens : std::vector<int64_t>{trace->tokens};
}

}  // namespace

std::span<const std::string_view> SuitePolicyNames() { return PolicyNames(); }

std::vector<PolicyCase> CasesOf(const PolicySuite& suite) {
  std::vector<PolicyCase> cases;
  for (size_t model = 0; model < suite.models.size(); ++model) {
    for (size_t machine = 0; machine < suite.machines.size(); ++machine) {
      for (const int64_t count : TokensOf(suite, suite.models[model])) {
        for (size_t budget = 0; budget < suite.budgets.size(); ++budget) {
          cases.push_back({model, machine, budget, count});
        }
      }
    }
  }
  return cases;
}

std::string CaseName(const PolicySuite& suite, const PolicyCase& the_case) {
  std::array<char, 32> share{};
  const int length =
      std::snprintf(share.data(), share.size(), "%.2f", suite.budgets[the_case.budget]);
  return StrCat(suite.models[the_case.model].name, "/", suite.machines[the_case.machine].name, "/",
                std::string_view(share.data(), static_cast<size_t>(length)), "@", the_case.tokens);
}

absl::StatusOr<MovementDecision> PlanCase(const PolicySuite& suite, const PolicyCase& the_case) {
  const SuiteMachine& machine = suite.machines[the_case.machine];
  GANTRY_ASSIGN_OR_RETURN(const Trace trace, TraceOf(suite.models[the_case.model],
                                                     machine.hardware.rates, the_case.tokens));
  GANTRY_ASSIGN_OR_RETURN(const Machine budgeted,
                          MachineOf(machine, trace, suite.budgets[the_case.budget]));
  return Decide(kPlanned, trace, budgeted, suite.wait_for_norm ? Norm::kWait : Norm::kIgnore);
}

absl::StatusOr<CaseOutcome> RunCase(const PolicySuite& suite, const PolicyCase& the_case) {
  const SuiteMachine& machine = suite.machines[the_case.machine];
  GANTRY_ASSIGN_OR_RETURN(const Trace trace, TraceOf(suite.models[the_case.model],
                                                     machine.hardware.rates, the_case.tokens));
  GANTRY_ASSIGN_OR_RETURN(const Machine budgeted,
                          MachineOf(machine, trace, suite.budgets[the_case.budget]));
  CaseOutcome outcome{.the_case = the_case};
  for (const Moment& moment : trace.moments) {
    if (moment.phase != Phase::kOptimizer) {
      outcome.compute += ComputeTime(moment.compute, budgeted.rates);
    }
  }
  const absl::Status fits = CheckFits(trace, budgeted);
  if (absl::IsResourceExhausted(fits)) {
    outcome.reason = std::string(FromAbsl(fits.message()));
    return outcome;
  }
  GANTRY_RETURN_IF_ERROR(fits);
  if (!budgeted.unified && !trace.chunks.empty()) {
    GANTRY_ASSIGN_OR_RETURN(const FreePlacementInput input, FreePlacementInputOf(trace, budgeted));
    outcome.free_bound = ComputeFreePlacementBound(input, {}).total;
  }
  for (size_t i = 0; i < suite.policies.size(); ++i) {
    PolicyOutcome policy{.policy = i};
    const Nanoseconds begin = MonotonicClock().Now();
    absl::StatusOr<MovementDecision> decision = Decide(
        suite.policies[i], trace, budgeted, suite.wait_for_norm ? Norm::kWait : Norm::kIgnore);
    if (suite.policies[i] == kPlanned) outcome.planning = MonotonicClock().Now() - begin;
    if (decision.ok()) {
      const LowerBound bound = ComputeLowerBound(decision->training.problem, {});
      policy.bound = bound.total;
      policy.limit = Name(bound.limit);
      policy.shape = decision->shape;
      policy.step = std::move(decision->predicted);
    } else {
      policy.reason = std::string(FromAbsl(decision.status().message()));
    }
    outcome.policies.push_back(std::move(policy));
  }
  return outcome;
}

}  // namespace gantry
