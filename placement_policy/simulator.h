// Runs a movement problem in virtual time under a movement plan, step after step, until the steps
// repeat. Decisions depend on the order of events only, never on clock values, as in the engine: a
// plan says what stays and in which order the rest comes; when something happens follows from it.
//
// Deterministic: integers throughout, ties by block number.
#ifndef GANTRY_PLACEMENT_POLICY_SIMULATOR_H_
#define GANTRY_PLACEMENT_POLICY_SIMULATOR_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/policy.h"

namespace gantry {

// What to keep, and how early to fetch.
struct MovementPlan {
  enum class Mode : uint8_t {
    // `keep` decides what stays after each use. Everything else is fetched in order of use, each as
    // early as the slots of all moments until then allow.
    kKeepSet,
    // Everything stays until its room is needed; then `eviction` picks. Blocks of the next
    // `look_ahead` moments are fetched ahead, which pushes out only what is used later.
    kOnDemand,
  };
  enum class UpdateOrder : uint8_t { kNextUse, kArrival };

  Mode mode = Mode::kKeepSet;
  // By use. For a gap of kind kSame only; ignored elsewhere.
  std::vector<bool> keep = {};
  // Slots that early fetches leave free for gradients and changed blocks on their way out.
  int64_t write_reserve = 2;
  // By use: content for it is fetched at most so many moments ahead. Empty: as early as possible.
  std::vector<int32_t> fetch_ahead_max = {};
  // By use: what it changes is not written back before it is dropped. Empty: none is held back.
  std::vector<bool> write_late = {};
  EvictionOrder eviction = EvictionOrder::kFurthestNextUse;
  int64_t look_ahead = 0;
  std::vector<Residency> residency = {};  // kOnDemand, by block; empty: all floating
  UpdateOrder update_order = UpdateOrder::kNextUse;
  // When buffers are short, updates whose states are in one come before those in memory.
  bool free_buffers_first = false;
};

enum class SimulatedLane : uint8_t {
  kHostToDevice,
  kDeviceToHost,
  kHostUpdate,
  kFileRead,
  kFileWrite,
};
inline constexpr int kSimulatedLaneCount = 5;
std::string_view Name(SimulatedLane lane);

// Why the next moment did not start.
enum class SimulatedStall : uint8_t { kFetch, kUpdate, kNorm, kRoom };
inline constexpr int kSimulatedStallCount = 4;
std::string_view Name(SimulatedStall stall);

struct SimulatedEvent {
  enum class Kind : uint8_t { kMoment, kTransfer };
  Kind kind;
  SimulatedLane lane = SimulatedLane::kHostToDevice;  // kTransfer
  int32_t block = -1;   // kTransfer on a copy lane, or a file's for a device block
  int32_t update = -1;  // kTransfer: of a host update (its gradient, the update, its states)
  int64_t moment = 0;   // absolute: kMoment, its number; kTransfer, the use or deadline it serves
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
};

// A block left the device: its slots are free from then on.
struct SimulatedDrop {
  int32_t block = -1;
  Nanoseconds time = 0;
};

// The next moment did not start, all along for this reason.
struct SimulatedWait {
  SimulatedStall cause = SimulatedStall::kFetch;
  int64_t moment = 0;  // absolute: the one that waits
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
};

struct SimulationOptions {
  int64_t steps_max = 16;  // when the steps do not repeat, the last third is averaged
  // Ends, as not steady, after a third or later step when it and the one before took longer. 0: no.
  Nanoseconds give_up_above = 0;
  bool record = false;  // events, drops and waits of all steps
  // Computing moment i of any step takes (1 + noise x a uniform number in [-1, 1]) of its time.
  double noise = 0.0;
  uint64_t noise_seed = 1;
  int64_t moves_max = 200'000'000;
};

struct SimulatedStep {
  Nanoseconds elapsed = 0;  // of one step in the steady state
  // The last one to six steps were equal to those before them in time, bytes, and what was left to
  // do; averages are over these.
  bool steady = false;
  int64_t steps = 0;  // simulated
  Nanoseconds compute = 0;
  std::array<Nanoseconds, kSimulatedStallCount> stalls{};
  std::array<Nanoseconds, kSimulatedLaneCount> busy{};
  std::array<int64_t, kSimulatedLaneCount> bytes{};
  std::array<int64_t, kSimulatedLaneCount> moves{};
  int64_t moves_total = 0;  // of the whole simulation
  // Recorded. In order of their ends, but for transfers under way when the simulation ended, which
  // are not there; drops and waits in order.
  std::vector<SimulatedEvent> events;
  std::vector<SimulatedDrop> drops;
  std::vector<SimulatedWait> waits;
};

// Errors: kInvalidArgument for a plan that does not match the problem; kResourceExhausted when the
// step cannot go on (named: the moment, and what it waits for) or moves_max is reached.
// REQUIRES: problem.Validate() is OK.
absl::StatusOr<SimulatedStep> Simulate(const MovementProblem& problem, const MovementPlan& plan,
                                       const SimulationOptions& options);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_SIMULATOR_H_
