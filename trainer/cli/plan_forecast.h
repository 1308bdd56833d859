// What training a model on a machine would be like: bytes per tier, time of a step and its bound,
// wear of the drives, the largest model that fits, what an upgrade would buy. Simulated from the
// model's shape; nothing is measured.
//
// Plain data; functions without state. Blocks for seconds with the largest models.
#ifndef GANTRY_TRAINER_CLI_PLAN_FORECAST_H_
#define GANTRY_TRAINER_CLI_PLAN_FORECAST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/parallel_for.h"
#include "placement_policy/hardware.h"
#include "placement_policy/least_budgets.h"
#include "placement_policy/lower_bound.h"
#include "placement_policy/machine.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/plan_alternatives.h"
#include "placement_policy/synthetic_trace.h"
#include "placement_policy/tier_bytes.h"
#include "placement_policy/trace.h"

namespace gantry {

struct PlanSettings {
  std::string model_name;
  ModelShape shape;
  // Its rate is the machine's; its recomputation, order and chunk size count if stated here.
  SyntheticOptions step = {};
  // Nothing (no chunk elements: 0): whichever is fastest.
  std::optional<Recomputation> recomputation = std::nullopt;
  std::optional<MicroBatchOrder> order = std::nullopt;
  int64_t chunk_elements = 0;
  // A placement to begin a search from.
  std::optional<PlacementShape> start = std::nullopt;
  bool wait_for_norm = false;  // updates wait for the step's gradient norm
  // Ranks, each with a machine like this one, and what they divide: 0 nothing, 1 states, 2
  // gradients too, 3 parameters too.
  int64_t ranks = 1;
  int zero_stage = 0;
  // Budgets; nothing: all that the machine has.
  std::optional<Bytes> device_memory = std::nullopt;
  std::optional<Bytes> host_memory = std::nullopt;
  int64_t drives = 1;            // that the file tier consists of
  double drive_terabytes = 600;  // that each may be written (TBW), in 10^12 bytes
};

// One way to run the step.
struct StepWay {
  MicroBatchOrder order = MicroBatchOrder::kMicroBatchMajor;
  Recomputation recomputation = Recomputation::kFull;
  int64_t chunk_elements = 0;

  friend bool operator==(const StepWay&, const StepWay&) = default;
};

// One step, planned.
struct StepForecast {
  StepWay way;
  PlanInput input;
  MovementDecision decision;
  // What was compared, with what became of each.
  std::vector<StepWay> ways = {};
  std::vector<TriedAlternative> tried = {};

  double seconds() const { return static_cast<double>(decision.predicted.elapsed) * 1e-9; }
};

// The fastest of the orders and recomputations that the settings leave open, at their chunk size or
// the rule's. Errors: kInvalidArgument for settings or a machine that are none; kResourceExhausted
// when the step does not fit, with what is needed and what there is.
absl::StatusOr<StepForecast> ForecastStep(const PlanSettings& settings, const Hardware& hardware);
// Adds what half and twice the chunk size would come to, and takes it where that pays.
void CompareChunkSizes(const PlanSettings& settings, const Hardware& hardware, StepForecast& step);

struct UpgradeForecast {
  std::string text;               // "48 GiB of device memory instead of 24 GiB"
  std::optional<double> seconds;  // of a step; nothing: `reason`
  std::string reason = {};
};

struct LargestModel {
  std::string published;  // the largest published size of the family that fits; empty: none
  int64_t published_parameters = 0;
  int64_t layers = 0;  // the most layers of this model's width that fit; 0: not even one
  int64_t layers_parameters = 0;
};

struct Forecast {
  StepForecast step;
  TierBytes tiers;  // of one rank
  LeastBudgets least;
  LowerBound bound;            // for the placement that was found
  Nanoseconds free_bound = 0;  // for any placement; 0: of a unified machine, which has one only
  double fast_seconds = 0.0;   // of a step when computing takes 0.7 times what is assumed
  double slow_seconds = 0.0;   // 1.3 times
  LargestModel largest;
  std::vector<UpgradeForecast> upgrades;  // the best first
  double drive_bytes_per_day = 0.0;       // written by one rank, training all day
  double drive_days = 0.0;                // until its drives are worn out; 0: never
};

inline constexpr double kComputeFast = 0.7;
inline constexpr double kComputeSlow = 1.3;

// Errors: as ForecastStep; of a step that does not fit, the message names the least machine that
// would do.
absl::StatusOr<Forecast> MakeForecast(const PlanSettings& settings, const Hardware& hardware,
                                      ThreadTeam& team);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_PLAN_FORECAST_H_
