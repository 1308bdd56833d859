// One step of training as the planner sees it: a sequence of moments (an operator, or one chunk's
// optimizer update), the blocks each uses, how long it computes, and how many slots activations
// hold meanwhile. Steps repeat, so a trace is cyclic: after the last moment comes the first.
// Plain data; gemini/MemoryTracer fills it.
#ifndef GANTRY_PLACEMENT_POLICY_TRACE_H_
#define GANTRY_PLACEMENT_POLICY_TRACE_H_

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/clock.h"

namespace gantry {

enum class Phase : uint8_t { kForward, kBackward, kOptimizer };

enum class BlockAccess : uint8_t {
  kRead,     // the content must be there
  kWrite,    // read and written (accumulation, optimizer state)
  kCreate,   // overwritten: no earlier content is needed
  kConsume,  // read for the last time; the block is empty afterwards
};

struct BlockUse {
  int32_t block;  // index into Trace::block_slots
  BlockAccess access;
};

struct Moment {
  Phase phase;
  int32_t name;       // index into Trace::names
  int64_t first_use;  // into Trace::uses
  int64_t use_count;
  Nanoseconds compute;       // 0 when unknown (dry trace)
  int64_t activation_slots;  // most slots under live activations during the moment
  int32_t micro_batch = 0;   // which of the step's micro-batches, from 0
  int32_t layer = -1;        // which repeated part of the model, from 0; -1: none of them
};

// The blocks of one range of elements; -1 where there is none (frozen: no gradient, no states).
struct TraceChunk {
  int32_t parameter = -1;
  int32_t gradient = -1;
  std::array<int32_t, 3> states = {-1, -1, -1};  // of the optimizer
};

// Memory that a forward moment leaves for a backward moment. The moments' activation slots count
// it from `created` to `used`, both included. It may be kept, moved out meanwhile, or dropped and
// computed again.
struct SavedActivation {
  int32_t created = 0;        // moment
  int32_t used = 0;           // moment, later
  int64_t slots = 0;          // may be freed between the two
  Nanoseconds recompute = 0;  // what computing it again before `used` takes
};

struct Trace {
  std::vector<int8_t> block_slots;  // 1 or 2 per block; 0 = the block does not exist
  std::vector<std::string> names;
  std::vector<BlockUse> uses;
  std::vector<Moment> moments;
  std::vector<TraceChunk> chunks = {};            // empty: the blocks are unrelated
  std::vector<SavedActivation> activations = {};  // empty: nothing can be moved or recomputed
  Bytes slot_bytes = Bytes(0);                    // 0: unknown
  int64_t tokens = 0;                             // of the whole step; 0: unknown

  std::span<const BlockUse> uses_of(const Moment& moment) const {
    return std::span(uses).subspan(static_cast<size_t>(moment.first_use),
                                   static_cast<size_t>(moment.use_count));
  }
  // Errors: kInvalidArgument naming the first field that is out of range, negative, or a use of a
  // block that does not exist.
  absl::Status Validate() const;
};

// The largest number of slots that any moment of `phases` needs at once: activations plus the
// blocks that it uses, each counted once. This is the least device budget that works.
struct SlotNeed {
  int64_t slots;
  int64_t activation_slots;
  int64_t block_slots;
  int64_t moment;  // index of the first moment that needs this much; -1 for an empty trace
};
// REQUIRES: trace.Validate() is OK.
SlotNeed LargestNeed(const Trace& trace, std::span<const Phase> phases);

// Answers "when is this block used next" over the cyclic trace.
class NextUseIndex {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // Keeps nothing of `trace`. REQUIRES: trace.Validate() is OK.
  explicit NextUseIndex(const Trace& trace);

  // Absolute time of the first use strictly after absolute time `now`, where absolute time is
  // step x moment_count + moment; kNever for a block without uses. O(log uses of the block).
  // REQUIRES: a block of the trace, -moment_count() <= now < kNever - 2 x moment_count().
  int64_t NextUse(int32_t block, int64_t now) const;
  int64_t moment_count() const { return moment_count_; }

 private:
  int64_t moment_count_;
  std::vector<int64_t> first_;    // block -> index into moments_of_
  std::vector<int32_t> moments_;  // ascending per block
};

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_TRACE_H_
