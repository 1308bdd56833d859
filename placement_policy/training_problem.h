// From a trace, a machine, and where each chunk is updated to the movement problem that follows.
//
// Updates on the host become HostUpdates. Updates on the device become moments: behind the one that
// completes the gradient; behind the backward pass when they wait for the norm; or, "in the next
// forward", before the first use of the parameter, until when the gradient stays. A chunk's states
// are one block, since they are only used together. A chunk whose gradient a moment of the backward
// pass consumes last is another rank's (sharded_trace.h): nothing is updated here.
//
// A saved activation that leaves the device is a few blocks, created in the forward pass and
// consumed in the backward pass. One that is computed again frees its slots in between and adds its
// time to the moment that needs it.
#ifndef GANTRY_PLACEMENT_POLICY_TRAINING_PROBLEM_H_
#define GANTRY_PLACEMENT_POLICY_TRAINING_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/trace.h"

namespace gantry {

enum class UpdatePlace : uint8_t {
  kHost,         // the gradient goes down, the new parameter comes up
  kDevice,       // the states come up, if they are not there, when the gradient is complete
  kNextForward,  // the same before the parameter's next use
};

struct ChunkChoice {
  UpdatePlace place = UpdatePlace::kHost;
  // Rather than in host memory; not for states that stay on the device.
  bool states_in_file = false;
  // Where nothing is updated, or the states are in files, too, or stay on the device.
  bool parameter_in_file = false;
  // They stay on the device and have no other place; of updates on the device.
  bool states_stay = false;
  bool parameter_stays = false;

  friend bool operator==(const ChunkChoice&, const ChunkChoice&) = default;
};

enum class ActivationPlace : uint8_t {
  kKeep,
  kRecompute,
  kHost,  // moves out and comes back, where the plan says so
  kFile,  // the same through a host buffer
};

struct TrainingChoices {
  std::vector<ChunkChoice> chunks;  // by trace chunk; ignored where nothing is updated
  std::vector<ActivationPlace> activations = {};  // by trace activation; empty: all are kept
  bool wait_for_norm = false;
  int64_t host_buffers = 0;  // when states are in files
};

// Small enough that a move does not hold up the lane, and large enough for few blocks.
inline constexpr int64_t kActivationBlockSlots = 4;

// A problem and what its blocks and moments stand for.
struct TrainingProblem {
  MovementProblem problem;
  // By trace chunk; -1 where the problem has no such block.
  std::vector<int32_t> parameter;
  std::vector<int32_t> gradient;
  std::vector<int32_t> states;         // of device updates
  std::vector<int32_t> update_moment;  // of device updates
  // By trace activation; empty unless it may leave. Blocks of at most kActivationBlockSlots.
  std::vector<std::vector<int32_t>> activations;
  // By trace moment; -1 for the optimizer's.
  std::vector<int32_t> moment;
};

// A trace without chunks is taken as it is: its blocks move, nothing is updated elsewhere.
// Errors: kInvalidArgument for a trace, machine or choice that does not fit; kResourceExhausted
// naming the moment whose blocks and activations need more slots than the device has.
// REQUIRES: trace.Validate() is OK.
absl::StatusOr<TrainingProblem> BuildProblem(const Trace& trace, const Machine& machine,
                                             const TrainingChoices& choices);

// Facts about a chunk's update, in slots.
struct UpdateFacts {
  int64_t parameter = 0;
  int64_t gradient = 0;
  int64_t states = 0;
  // Memory traffic: gradient read, states read and written, parameter written.
  int64_t traffic() const { return gradient + 2 * states + parameter; }
};
UpdateFacts UpdateFactsOf(const Trace& trace, const TraceChunk& chunk);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_TRAINING_PROBLEM_H_
