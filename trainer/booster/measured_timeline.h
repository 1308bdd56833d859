// The timeline of a step that ran, from what the engine told its trace sink.
#ifndef GANTRY_TRAINER_BOOSTER_MEASURED_TIMELINE_H_
#define GANTRY_TRAINER_BOOSTER_MEASURED_TIMELINE_H_

#include "base/bytes.h"
#include "placement_policy/report/step_timeline.h"
#include "placement_policy/trace.h"
#include "trainer/booster/step_recorder.h"

namespace gantry {

struct MeasuredTimelineInput {
  const RecordedStep* step;  // outlives the call
  // The step's trace, for bytes of blocks, and for layers of operators where the step is as the
  // trace says; null: not known.
  const Trace* trace = nullptr;
  Bytes slot_bytes = Bytes(0);
  Bytes device_budget = Bytes(0);
  Bytes host_budget = Bytes(0);  // 0: device and host are one memory
};

// Moves are arranged. A move begins when it is handed to its lane; an operator lasts until the next
// is asked for. A pure function.
// REQUIRES: slot_bytes > 0.
StepTimeline MeasuredTimeline(const MeasuredTimelineInput& input);

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_MEASURED_TIMELINE_H_
