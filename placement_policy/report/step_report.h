// What a report of a planned or trained step says, before it is a page or a trace: figures of the
// simulated and of the measured step side by side, the plan's certificate, and their timelines.
// Plain data. Text in it may come from anybody's files: who shows it escapes it.
#ifndef GANTRY_PLACEMENT_POLICY_REPORT_STEP_REPORT_H_
#define GANTRY_PLACEMENT_POLICY_REPORT_STEP_REPORT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "placement_policy/machine.h"
#include "placement_policy/report/step_timeline.h"
#include "placement_policy/simulator.h"

namespace gantry {

struct LaneFigures {
  Nanoseconds busy = 0;
  int64_t bytes = 0;
  int64_t moves = 0;
};

// Averages of a step.
struct StepFigures {
  Nanoseconds elapsed = 0;
  Nanoseconds compute = 0;
  std::array<Nanoseconds, kSimulatedStallCount> stalls{};
  std::array<LaneFigures, kSimulatedLaneCount> lanes{};
  int64_t steps = 0;  // that they are averages of
};
// By the lanes under which they are shown (ShownLane).
StepFigures FiguresOf(const SimulatedStep& step, const Machine& machine);

struct TierFigures {
  std::string name;
  Bytes budget = Bytes(0);  // 0: not known
  std::optional<Bytes> simulated_peak = std::nullopt;
  std::optional<Bytes> measured_peak = std::nullopt;
};

// A line of a table: "bound", "1.23 s", "from the copies to the device".
struct ReportFact {
  std::string name;
  std::string value;
  std::string note = {};
};

struct StepReport {
  std::string title;
  std::string subtitle = {};
  std::vector<ReportFact> certificate = {};  // empty: there is no plan
  std::optional<StepFigures> simulated = std::nullopt;
  std::optional<StepFigures> measured = std::nullopt;
  std::vector<TierFigures> tiers = {};
  std::optional<StepTimeline> simulated_timeline = std::nullopt;
  std::optional<StepTimeline> measured_timeline = std::nullopt;
  // By chunk: the tensors in it, as far as known.
  std::vector<std::string> chunk_names = {};
  std::vector<std::string> notes = {};
};

// Joins names for a chunk: "a, b and 3 more". Long names are cut.
std::string JoinTensorNames(const std::vector<std::string>& names);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_REPORT_STEP_REPORT_H_
