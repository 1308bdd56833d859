#include "benches/policies/planner_speed.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/simulator.h"

namespace gantry {
namespace {

// Simulated again and again until there are so many: about a second's worth.
constexpr int64_t kMoves = 1'000'000;

double Seconds(Nanoseconds time) {
  return static_cast<double>(std::max<Nanoseconds>(time, 1)) / 1e9;
}

}  // namespace

absl::StatusOr<std::vector<BenchRow>> SpeedRows(const PolicySuite& suite,
                                                std::span<const CaseOutcome> outcomes,
                                                const Clock& clock) {
  const auto slowest = std::ranges::max_element(outcomes, {}, &CaseOutcome::planning);
  std::vector<BenchRow> rows;
  if (slowest == outcomes.end() || slowest->planning == 0) return rows;
  const Nanoseconds begin = clock.Now();
  GANTRY_ASSIGN_OR_RETURN(const MovementDecision decision, PlanCase(suite, slowest->the_case));
  const Nanoseconds planned = clock.Now();
  BenchRow planner = FigureRow("planner/seconds", Seconds(planned - begin), "s");
  planner.note = StrCat(CaseName(suite, slowest->the_case), ", ", decision.placements_tried,
                        " placements simulated");
  rows.push_back(std::move(planner));
  int64_t moves = 0;
  while (moves < kMoves) {
    GANTRY_ASSIGN_OR_RETURN(const SimulatedStep step,
                            Simulate(decision.training.problem, decision.movement, {}));
    if (step.moves_total == 0) return rows;  // all fits: there is nothing to move
    moves += step.moves_total;
  }
  rows.push_back(FigureRow("simulator/moves",
                           static_cast<double>(moves) / Seconds(clock.Now() - planned), "1/s"));
  return rows;
}

}  // namespace gantry
