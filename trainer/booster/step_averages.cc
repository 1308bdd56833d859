#include "trainer/booster/step_averages.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "gemini/engine.h"
#include "offload/transfer_engine.h"
#include "placement_policy/report/step_report.h"
#include "placement_policy/simulator.h"
#include "trainer/booster/metrics.h"

namespace gantry {
namespace {

SimulatedLane LaneOf(TransferLane lane) {
  switch (lane) {
    case TransferLane::kHostToDevice:
      return SimulatedLane::kHostToDevice;
    case TransferLane::kDeviceToHost:
      return SimulatedLane::kDeviceToHost;
    case TransferLane::kFileRead:
      return SimulatedLane::kFileRead;
    case TransferLane::kFileWrite:
      return SimulatedLane::kFileWrite;
  }
  return SimulatedLane::kHostToDevice;
}

SimulatedStall CauseOf(StallCause cause) {
  switch (cause) {
    case StallCause::kParameter:
      return SimulatedStall::kFetch;
    case StallCause::kRoom:
      return SimulatedStall::kRoom;
    case StallCause::kUpdate:
      return SimulatedStall::kUpdate;
    case StallCause::kNorm:
      return SimulatedStall::kNorm;
  }
  return SimulatedStall::kFetch;
}

}  // namespace

void StepAverages::Look() { before_ = engine_->statistics(); }

void StepAverages::OnStart(const RunDescription&) { Look(); }
void StepAverages::OnEvaluation(const EvaluationMetrics&) { Look(); }
void StepAverages::OnCheckpoint(const CheckpointMetrics&) { Look(); }

void StepAverages::OnStep(const StepMetrics& metrics) {
  const EngineStatistics now = engine_->statistics();
  const EngineStatistics before = std::exchange(before_, now);
  const PlannedStep* const planned = engine_->planned_step(key_);
  const uint64_t plan = planned == nullptr ? 0 : planned->decision.hash;
  if (plan_ != plan) {  // the first step, or one that made its plan or left it
    plan_ = plan;
    sum_ = StepFigures();
    return;
  }
  sum_.steps += 1;
  sum_.elapsed += metrics.duration;
  sum_.compute += metrics.duration - metrics.stall;
  for (int i = 0; i < kStallCauseCount; ++i) {
    const auto cause = static_cast<size_t>(i);
    sum_.stalls[static_cast<size_t>(CauseOf(static_cast<StallCause>(i)))] +=
        now.stalls[cause] - before.stalls[cause];
  }
  for (int i = 0; i < kTransferLaneCount; ++i) {
    const auto lane = static_cast<size_t>(i);
    LaneFigures& sum = sum_.lanes[static_cast<size_t>(LaneOf(static_cast<TransferLane>(i)))];
    sum.busy += now.lanes[lane].busy - before.lanes[lane].busy;
    sum.bytes += now.lanes[lane].bytes - before.lanes[lane].bytes;
    sum.moves += now.lanes[lane].transfers - before.lanes[lane].transfers;
  }
  sum_.lanes[static_cast<size_t>(SimulatedLane::kHostUpdate)].busy +=
      now.update_busy - before.update_busy;
}

std::optional<StepFigures> StepAverages::measured() const {
  if (sum_.steps == 0) return std::nullopt;
  StepFigures mean = sum_;
  const int64_t steps = sum_.steps;
  mean.elapsed /= steps;
  mean.compute /= steps;
  for (Nanoseconds& stall : mean.stalls) stall /= steps;
  for (LaneFigures& lane : mean.lanes) {
    lane = {.busy = lane.busy / steps, .bytes = lane.bytes / steps, .moves = lane.moves / steps};
  }
  return mean;
}

std::optional<StepFigures> StepAverages::simulated() const {
  const PlannedStep* const planned = engine_->planned_step(key_);
  if (planned == nullptr) return std::nullopt;
  return FiguresOf(planned->decision.predicted, planned->machine);
}

}  // namespace gantry
