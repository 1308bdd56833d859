#include "placement_policy/report/plan_certificate.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/strings.h"
#include "placement_policy/free_placement_bound.h"
#include "placement_policy/lower_bound.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/report/lane_text.h"
#include "placement_policy/report/report_text.h"
#include "placement_policy/report/step_report.h"
#include "placement_policy/simulator.h"
#include "placement_policy/trace.h"
#include "placement_policy/training_problem.h"

namespace gantry {
namespace {

std::string_view LimitText(LowerBound::Limit limit) {
  switch (limit) {
    case LowerBound::Limit::kCompute:
      return "from computing";
    case LowerBound::Limit::kHostToDevice:
      return "from the copies to the device";
    case LowerBound::Limit::kDeviceToHost:
      return "from the copies from the device";
    case LowerBound::Limit::kLink:
      return "from the copies, both ways";
    case LowerBound::Limit::kHostUpdate:
      return "from the updates on the host";
    case LowerBound::Limit::kFileRead:
      return "from the file reads";
    case LowerBound::Limit::kFileWrite:
      return "from the file writes";
    case LowerBound::Limit::kFiles:
      return "from the files, reads and writes";
    case LowerBound::Limit::kPath:
      return "from when blocks can be there at the earliest";
  }
  return "?";
}

std::string Times(Nanoseconds step, Nanoseconds bound) {
  return Fixed(static_cast<double>(step) / static_cast<double>(bound), 4);
}

ReportFact PlacementFact(const Machine& machine, const MovementDecision& decision) {
  const PlacementShape& shape = decision.shape;
  int64_t updated = 0;
  for (const int32_t gradient : decision.training.gradient) updated += gradient >= 0 ? 1 : 0;
  const int64_t on_device = machine.unified ? updated : shape.resident + shape.streamed;
  std::string text = StrCat(updated - on_device, " of ", updated,
                            " chunks are updated on the host, ", on_device, " on the device");
  if (!machine.unified && on_device > 0) {
    text += StrCat(" (states of ", shape.resident, " stay there, those of ", shape.streamed,
                   " pass through, ", shape.next_forward, " of them in the next forward pass)");
  }
  if (shape.in_files > 0) text += StrCat("; states of ", shape.in_files, " lie in files");
  if (shape.parameters_in_files > 0) {
    text += StrCat(", parameters of ", shape.parameters_in_files, " too");
  }
  return {.name = "placement", .value = text};
}

// What the longest lane, or computing, takes of the step.
ReportFact LimitingFact(const MovementDecision& decision) {
  const SimulatedStep& step = decision.predicted;
  std::string name = "computing";
  Nanoseconds most = step.compute;
  const auto consider = [&](std::string_view lane, Nanoseconds busy) {
    if (busy <= most) return;
    most = busy;
    name = lane;
  };
  const auto busy = [&step](SimulatedLane lane) { return step.busy[static_cast<size_t>(lane)]; };
  for (int i = 0; i < kSimulatedLaneCount; ++i) {
    const auto lane = static_cast<SimulatedLane>(i);
    consider(Text(lane), busy(lane));
  }
  const MovementProblem& problem = decision.training.problem;
  if (problem.file_half_duplex) {
    consider("files, reads and writes",
             busy(SimulatedLane::kFileRead) + busy(SimulatedLane::kFileWrite));
  }
  if (problem.link_half_duplex) {
    consider("copies, both ways",
             busy(SimulatedLane::kHostToDevice) + busy(SimulatedLane::kDeviceToHost));
  }
  return {.name = "limiting lane",
          .value = name,
          .note = StrCat("busy for ", TimeText(most), " of the step")};
}

ReportFact FetchFact(const MovementDecision& decision, const LowerBound& bound) {
  const int64_t slot_bytes = decision.training.problem.slot_bytes;
  const int64_t bytes = decision.predicted.bytes[static_cast<size_t>(SimulatedLane::kHostToDevice)];
  ReportFact fact{
      .name = "fetched in a step",
      .value = StrCat(CeilDiv(bytes, slot_bytes), " slots, ", Bytes(bytes), "; MIN ",
                      bound.slots_fetched, " slots, ", Bytes(bound.slots_fetched * slot_bytes))};
  if (bound.slots_fetched > 0) {
    const double least = static_cast<double>(bound.slots_fetched * slot_bytes);
    fact.note =
        StrCat(Fixed(static_cast<double>(bytes) / least, 4), " times what Belady's MIN fetches");
  }
  return fact;
}

std::string HashText(uint64_t hash) {
  std::array<char, 20> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%016llx", static_cast<unsigned long long>(hash));
  return buffer.data();
}

}  // namespace

std::vector<ReportFact> PlanCertificate(const Trace& trace, const Machine& machine,
                                        const MovementDecision& decision) {
  const SimulatedStep& step = decision.predicted;
  const LowerBound bound = ComputeLowerBound(decision.training.problem, {});
  std::vector<ReportFact> facts = {
      PlacementFact(machine, decision),
      {.name = "clipping",
       .value = decision.choices.wait_for_norm
                    ? "updates wait for the step's gradient norm"
                    : "updates do not wait for the step's gradient norm"},
      {.name = "simulated step",
       .value = TimeText(step.elapsed),
       .note = step.steady ? "steps repeat" : "steps do not repeat; a mean"},
      {.name = "window bound",
       .value = TimeText(bound.total),
       .note = StrCat(LimitText(bound.limit),
                      "; no plan with this placement and clipping takes "
                      "less. The step takes ",
                      Times(step.elapsed, bound.total), " times that")}};
  const absl::StatusOr<FreePlacementInput> input = FreePlacementInputOf(trace, machine);
  if (input.ok()) {  // not when there is one placement only
    const FreePlacementBound free = ComputeFreePlacementBound(*input, {});
    facts.push_back({.name = "free-placement bound",
                     .value = TimeText(free.total),
                     .note = StrCat("no plan with any placement takes less. The step takes ",
                                    Times(step.elapsed, free.total), " times that")});
  }
  facts.push_back(LimitingFact(decision));
  facts.push_back(FetchFact(decision, bound));
  facts.push_back({.name = "plan", .value = HashText(decision.hash), .note = "its hash"});
  return facts;
}

}  // namespace gantry
