#include "placement_policy/policy_plan.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "base/tier.h"
#include "placement_policy/placement_builder.h"
#include "placement_policy/training_problem.h"

namespace gantry {
namespace {

std::vector<ChunkFacts> FactsOf(const Trace& trace) {
  std::vector<ChunkFacts> all;
  for (const TraceChunk& chunk : trace.chunks) {
    const UpdateFacts facts = UpdateFactsOf(trace, chunk);
    all.push_back({.parameter_slots = facts.parameter,
                   .gradient_slots = facts.gradient,
                   .optimizer_slots = facts.states});
  }
  return all;
}

int64_t ActivationSlotsMax(const Trace& trace) {
  constexpr std::array kPhases = {Phase::kForward, Phase::kBackward};
  return LargestNeed(trace, kPhases).activation_slots;
}

// How many chunks' states do not lie on the device, and how many of these the policy itself keeps
// in files.
struct OffDevice {
  int64_t chunks = 0;
  int64_t spilled = 0;
};

OffDevice PlaceUpdates(const Placement& placement, const Trace& trace, MovementDecision& decision) {
  OffDevice off;
  for (size_t c = 0; c < trace.chunks.size(); ++c) {
    const ChunkPlacement& place = placement.chunks[c];
    const bool has_states = UpdateFactsOf(trace, trace.chunks[c]).states > 0;
    ChunkChoice& choice = decision.choices.chunks[c];
    if (place.update_tier == Tier::kDevice) {
      choice.place = UpdatePlace::kDevice;
      decision.resident[c] = place.optimizer_on_update_tier == Residency::kPinned;
      if (decision.resident[c]) continue;
    }
    if (!has_states) continue;
    ++off.chunks;
    choice.states_in_file = place.optimizer_on_update_tier == Residency::kTransient;
    if (choice.states_in_file) ++off.spilled;
  }
  return off;
}

// Puts more states into files until host memory holds the rest. Chunks of the end go first.
absl::Status FitHost(const Trace& trace, const Machine& machine, const PolicyPlanOptions& options,
                     const Placement& placement, MovementDecision& decision) {
  if (machine.unified) return absl::OkStatus();
  const OffDevice off = PlaceUpdates(placement, trace, decision);
  int64_t states_max = 0;
  for (const TraceChunk& chunk : trace.chunks) {
    states_max = std::max(states_max, UpdateFactsOf(trace, chunk).states);
  }
  PlacementShape& shape = decision.shape;
  shape.in_files = off.spilled;
  HostRoom room = HostRoomOf(trace, machine, shape);
  const bool fits = room.states >= (off.chunks - off.spilled) * states_max;
  if (fits && off.spilled == 0) return absl::OkStatus();
  shape.host_buffers = std::max<int64_t>(options.host_buffers, 2);
  room = HostRoomOf(trace, machine, shape);
  if (room.states < 0 || !machine.has_file_tier) {
    return ResourceExhausted("host memory: ", room.slots_needed + off.chunks * states_max,
                             " slots are needed for parameters, states and buffers; there are ",
                             machine.host_slots, machine.has_file_tier ? "" : ", and no file tier");
  }
  const int64_t held = states_max > 0 ? room.states / states_max : off.chunks;
  int64_t more = std::max<int64_t>(off.chunks - off.spilled - held, 0);
  if (more > 0 && placement.eviction == EvictionOrder::kLeastRecentlyUsed) {
    more = off.chunks - off.spilled;
  }
  for (size_t c = trace.chunks.size(); c-- > 0 && more > 0;) {
    ChunkChoice& choice = decision.choices.chunks[c];
    const bool on_device = decision.resident[c];
    if (choice.states_in_file || on_device) continue;
    if (UpdateFactsOf(trace, trace.chunks[c]).states == 0) continue;
    choice.states_in_file = true;
    ++shape.in_files;
    --more;
  }
  decision.choices.host_buffers = shape.host_buffers;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MovementDecision> PolicyPlan(std::string_view policy, const Trace& trace,
                                            const Machine& machine,
                                            const PolicyPlanOptions& options) {
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<PlacementPolicy> created,
                          CreatePolicy(policy, options.fractions));
  const std::vector<ChunkFacts> facts = FactsOf(trace);
  GANTRY_ASSIGN_OR_RETURN(const Placement placement,
                          created->Place({.chunks = facts,
                                          .machine = machine,
                                          .activation_slots_max = ActivationSlotsMax(trace)}));
  MovementDecision decision;
  decision.choices = {.chunks = std::vector<ChunkChoice>(trace.chunks.size()),
                      .wait_for_norm = options.wait_for_norm};
  decision.resident.assign(trace.chunks.size(), false);
  GANTRY_RETURN_IF_ERROR(FitHost(trace, machine, options, placement, decision));
  GANTRY_ASSIGN_OR_RETURN(decision.training, BuildProblem(trace, machine, decision.choices));
  const TrainingProblem& training = decision.training;
  decision.movement = {.mode = MovementPlan::Mode::kOnDemand,
                       .eviction = placement.eviction,
                       .look_ahead = options.look_ahead,
                       .residency = std::vector<Residency>(training.problem.block_slots.size(),
                                                           Residency::kFloating),
                       .update_order = options.update_order};
  for (size_t c = 0; c < trace.chunks.size(); ++c) {
    const ChunkPlacement& place = placement.chunks[c];
    decision.movement.residency[static_cast<size_t>(training.parameter[c])] =
        place.parameter_on_device;
    if (training.states[c] >= 0) {
      decision.movement.residency[static_cast<size_t>(training.states[c])] =
          place.optimizer_on_update_tier;
    }
    if (training.states[c] < 0) continue;
    if (decision.resident[c]) {
      ++decision.shape.resident;
    } else {
      ++decision.shape.streamed;
    }
  }
  GANTRY_ASSIGN_OR_RETURN(decision.predicted, Simulate(training.problem, decision.movement, {}));
  decision.placements_tried = 1;
  decision.hash = HashOf(decision);
  return decision;
}

}  // namespace gantry
