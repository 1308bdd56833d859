// One training step on a time axis, simulated or measured: what the device computed and what it
// waited for, what moved on which lane, and whose bytes lay on which tier. Plain data, which a page
// (report_page.h) and a trace for a viewer (report_trace.h) are made of.
//
// Times count from the step's begin. What is under way when the step begins or ends has times
// below 0 or beyond the duration. Names may be anything: who shows them escapes them.
#ifndef GANTRY_PLACEMENT_POLICY_REPORT_STEP_TIMELINE_H_
#define GANTRY_PLACEMENT_POLICY_REPORT_STEP_TIMELINE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "placement_policy/machine.h"
#include "placement_policy/simulator.h"
#include "placement_policy/trace.h"

namespace gantry {

// What bytes on a tier are for.
enum class ByteKind : uint8_t {
  kParameters,
  kGradients,
  kStates,
  kActivations,
  kBuffers,  // for what is on its way in or out
};
inline constexpr int kByteKindCount = 5;
std::string_view Name(ByteKind kind);  // "parameters", ...
using KindSlots = std::array<int64_t, kByteKindCount>;

// Where files lie right below the device, they are what its copy lanes stand for: the lane under
// which a transfer is shown.
SimulatedLane ShownLane(const Machine& machine, SimulatedLane lane);

// An operator, or a device update, that computes.
struct TimelineOperator {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  int32_t name = 0;  // into StepTimeline::names
  Phase phase = Phase::kForward;
  int32_t micro_batch = 0;
  int32_t layer = -1;
  int64_t count = 1;  // operators merged into this one
};

struct TimelineWait {
  SimulatedStall cause = SimulatedStall::kFetch;
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
};

// Why something moves.
enum class MoveReason : uint8_t {
  kUse,       // for the operator `serves`
  kUpdate,    // to where it is updated, or the update itself; `serves` uses what it makes
  kRoom,      // it leaves its room to others; `serves` uses it again
  kStates,    // states for an update
  kSave,      // states after an update, or a block, to its file
  kDemand,    // measured: an operator waits for it
  kPrefetch,  // measured: fetched ahead
};
inline constexpr int kMoveReasonCount = 7;
std::string_view Text(MoveReason reason);  // "fetched for", ...

struct TimelineMove {
  SimulatedLane lane = SimulatedLane::kHostToDevice;
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  int64_t bytes = 0;
  int32_t subject = -1;  // into StepTimeline::subjects; -1: several, or not known
  MoveReason reason = MoveReason::kUse;
  int32_t serves = -1;      // into StepTimeline::operators; -1: none or not known
  int64_t serves_step = 0;  // 1: of the next step
  int32_t row = 0;          // moves of one lane and row do not overlap
  int64_t count = 1;        // moves merged into this one
};

// What a move carries: a kind of block of a chunk.
struct MoveSubject {
  std::string what;    // "parameter", "gradient", "states", ...
  int64_t chunk = -1;  // -1: of none
};

// Slots from `time` to the next point.
struct TierPoint {
  Nanoseconds time = 0;
  KindSlots slots{};
};

struct TierCurve {
  std::string name;                    // "device", "host", "files"
  Bytes budget = Bytes(0);             // 0: not known
  std::vector<TierPoint> points = {};  // ascending times; the first at or before 0
};

struct StepTimeline {
  Nanoseconds duration = 0;
  Bytes slot_bytes = Bytes(0);
  std::vector<std::string> names = {};
  std::vector<TimelineOperator> operators = {};  // in order
  std::vector<TimelineWait> waits = {};          // in order
  std::vector<MoveSubject> subjects = {};
  std::vector<TimelineMove> moves = {};  // by begin
  std::vector<TierCurve> tiers = {};
  std::vector<std::string> notes = {};  // what was left out or merged
};

// The largest sum of kinds of a tier's points.
Bytes PeakOf(const TierCurve& tier, Bytes slot_bytes);

// Sorts the moves by begin, and gives those of a lane that overlap rows of their own, the first
// that is free.
void ArrangeMoves(StepTimeline& timeline);

struct TimelineLimits {
  int64_t operators = 12'000;
  int64_t moves = 30'000;
  int64_t waits = 10'000;
  int64_t points = 2'000;  // of each tier
};
// Merges neighbours until each list is within its limit, and says so in the notes: operators of one
// phase, moves of one lane and row, points (the fuller one stays). Bytes and counts add up.
// REQUIRES: ArrangeMoves was called.
void LimitTimeline(const TimelineLimits& limits, StepTimeline& timeline);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_REPORT_STEP_TIMELINE_H_
