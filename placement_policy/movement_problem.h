// A training step reduced to what decides how its blocks move: the moments that compute on the
// device, the slots each leaves for blocks, and the updates that happen elsewhere. Simulator,
// bounds and planners all work on this form; BuildProblem makes it from a Trace, a Machine and the
// decision where each chunk is updated.
//
// The rules of the model, which everything here shares:
//
//   - A step is a cycle of moments, computed in order and one at a time. A moment starts when each
//     block that it uses is on the device in the version that it needs, and when the blocks held
//     on the device fit its capacity.
//   - A block holds its slots from the start of the fetch that brings it (or of the moment that
//     creates it) until it is dropped; a changed block until it has been written back. Dropping an
//     unchanged one is free.
//   - Each lane carries one transfer at a time, for latency + bytes / bandwidth. Host to device,
//     device to host, host updates, and files are lanes of their own. With half-duplex files, reads
//     and writes share one lane.
//   - A host update takes the gradient when its last use (`complete`) has ended: down the lane,
//     then the update (after the norm is known, with wait_for_norm), then the parameter's next
//     version is on the host. The device copy of the old version is dropped after its last use.
//   - What lies in files passes one of `host_buffers` buffers: states are read before each update
//     and written after it, blocks are read before each fetch and written after each way down.
//     Nothing is used a second time from a buffer. A parameter in a file whose states are updated
//     on the host is written with them, and can be read when it is written.
//   - A block that `stays` has no place beside the device: once there, it is never dropped while
//   its
//     content counts.
//   - An update on the device is a moment like any other, which writes states and parameter.
#ifndef GANTRY_PLACEMENT_POLICY_MOVEMENT_PROBLEM_H_
#define GANTRY_PLACEMENT_POLICY_MOVEMENT_PROBLEM_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "placement_policy/machine.h"
#include "placement_policy/trace.h"

namespace gantry {

struct MovementProblem {
  // Which step's global gradient norm a moment must know: that of its own step, or of the last.
  enum class Norm : uint8_t { kNotNeeded, kOfThisStep, kOfLastStep };

  struct Moment {
    int64_t first_use = 0;  // into uses
    int64_t use_count = 0;
    Nanoseconds compute = 0;
    int64_t capacity = 0;  // slots that blocks may hold while it computes
    Norm norm = Norm::kNotNeeded;
    int64_t source = -1;  // the trace's moment it stands for; -1: a device update put in
  };
  struct HostUpdate {
    int32_t parameter = -1;
    int32_t gradient = -1;
    int32_t complete = -1;   // moment at whose end the gradient is complete
    Nanoseconds update = 0;  // time on the update lane
    // Of states, read before and written after; 0: they are in memory, and the parameter is.
    int64_t file_bytes = 0;
  };

  std::vector<int32_t> block_slots;  // at least 1
  // Device blocks whose content beside the device is a file's: fetched and written back through a
  // host buffer.
  std::vector<bool> in_file;
  std::vector<bool> stays = {};  // neither in a file nor of a host update; empty: none
  std::vector<BlockUse> uses;    // a block at most once per moment
  std::vector<Moment> moments;
  std::vector<HostUpdate> updates;

  int64_t slot_bytes = 1;
  Lane host_to_device;
  Lane device_to_host;
  Lane file_read;
  Lane file_write;
  bool file_half_duplex = true;
  bool link_half_duplex = false;  // both copy directions share one lane (a file below the device)
  // Host updates wait for the norm: until moment `norm_moment` has ended and the gradients of all
  // host updates are on the host.
  bool wait_for_norm = false;
  int32_t norm_moment = -1;  // -1: only the host's gradients count
  int64_t host_buffers = 0;  // each for the states of one chunk

  std::span<const BlockUse> uses_of(const Moment& moment) const {
    return std::span(uses).subspan(static_cast<size_t>(moment.first_use),
                                   static_cast<size_t>(moment.use_count));
  }
  int64_t block_bytes(int32_t block) const {
    return block_slots[static_cast<size_t>(block)] * slot_bytes;
  }
  bool block_stays(int32_t block) const {
    return !stays.empty() && stays[static_cast<size_t>(block)];
  }

  // Errors: kInvalidArgument naming the field: an index out of range, a block used twice in a
  // moment, a negative time; a moment whose own blocks exceed its capacity; an update of a block
  // that a moment writes; a gradient that is used after `complete` or not created before.
  absl::Status Validate() const;
};

// What lies between a use of a block and its next use, which may be in the next step.
enum class Gap : uint8_t {
  kSame,   // the same content: the block may stay, or be dropped and fetched again
  kStays,  // the same content, of a block that stays
  kNew,    // a host update makes a new version in between: it must be fetched
  kNone,   // the next use creates it, or there is none: nothing to keep and nothing to fetch
};

// The uses of all blocks as cycles.
struct UseCycle {
  struct Link {
    int32_t moment = 0;
    int32_t next = 0;      // use; itself when the block has one use
    int32_t distance = 0;  // moments until the next use, 1 to moment count
    Gap gap = Gap::kNone;
  };
  std::vector<Link> links;         // by use
  std::vector<int32_t> first_use;  // by block; -1: never used
  std::vector<int32_t> update_of;  // by block (parameter or gradient) -> host update; -1
};
// REQUIRES: problem.Validate() is OK.
UseCycle LinkUses(const MovementProblem& problem);

// Transfer or update time on a lane, rounded up. REQUIRES: bytes >= 0, a lane with a bandwidth.
Nanoseconds LaneTime(const Lane& lane, int64_t bytes);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_MOVEMENT_PROBLEM_H_
