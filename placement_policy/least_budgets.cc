#include "placement_policy/least_budgets.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/planner.h"
#include "placement_policy/trace.h"
#include "placement_policy/training_problem.h"

namespace gantry {
namespace {

constexpr int64_t kHostBuffers = 4;  // as few as stream states with their parameters

// Slots that last from step to step: parameters, and the states of what is trained.
struct Lasting {
  int64_t parameters = 0;
  int64_t states = 0;
};
Lasting LastingOf(const Trace& trace) {
  Lasting lasting;
  for (const TraceChunk& chunk : trace.chunks) {
    const UpdateFacts facts = UpdateFactsOf(trace, chunk);
    lasting.parameters += facts.parameter;
    if (chunk.gradient >= 0) lasting.states += facts.states;
  }
  return lasting;
}

// What operators need at once; updates can be elsewhere, unless there is no elsewhere.
int64_t LeastDeviceSlots(const Trace& trace, const Machine& machine) {
  constexpr std::array kAll = {Phase::kForward, Phase::kBackward, Phase::kOptimizer};
  const std::span<const Phase> phases(kAll);
  return LargestNeed(trace, machine.unified ? phases : phases.first(2)).slots;
}

}  // namespace

absl::StatusOr<LeastBudgets> FindLeastBudgets(const Trace& trace, const Machine& machine,
                                              const PlannerOptions& options) {
  GANTRY_CHECK(!trace.chunks.empty());
  const Lasting lasting = LastingOf(trace);
  Machine ample = machine;
  ample.slot_bytes = trace.slot_bytes;
  if (!machine.unified) ample.host_slots = 2 * (lasting.parameters + lasting.states) + 1024;
  const auto runs = [&](int64_t slots) {
    ample.device_slots = slots;
    return EvaluateShape(trace, ample, options, {}).status();
  };
  // Doubles what is beside the need until a step runs, then halves the gap.
  const int64_t need = std::max<int64_t>(LeastDeviceSlots(trace, machine), 1);
  const int64_t all = need + lasting.parameters + lasting.states + 1024;
  int64_t enough = need;
  int64_t too_few = need - 1;
  for (int64_t more = 1;; more *= 2) {
    const absl::Status status = runs(enough);
    if (status.ok()) break;
    if (!absl::IsResourceExhausted(status) || enough >= all) return status;
    too_few = enough;
    enough = std::min(need + more, all);
  }
  while (enough - too_few > 1) {
    const int64_t middle = too_few + (enough - too_few) / 2;
    (runs(middle).ok() ? enough : too_few) = middle;
  }
  LeastBudgets least{.device = trace.slot_bytes * enough};
  if (machine.unified) {
    least.files = trace.slot_bytes * (lasting.parameters + lasting.states);
    return least;
  }
  least.host_without_files =
      trace.slot_bytes * (HostRoomOf(trace, ample, {}).slots_needed + lasting.states);
  const PlacementShape all_in_files = {
      .host_buffers = kHostBuffers,
      .parameters_in_files = static_cast<int64_t>(trace.chunks.size())};
  least.host_with_files = trace.slot_bytes * HostRoomOf(trace, ample, all_in_files).slots_needed;
  least.host_with_files = std::min(least.host_with_files, least.host_without_files);
  least.files = trace.slot_bytes * (lasting.parameters + lasting.states);
  return least;
}

}  // namespace gantry
