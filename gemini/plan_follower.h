// What a movement plan says at each moment of a step: which blocks stay on the device after their
// use, and which may be fetched ahead now. Translates a MovementDecision, whose moments and blocks
// are the planner's, into leases and BlockIndex.
//
// A fetch may start as soon as the slots of all moments until its use allow, in the order of use
// (placement_policy/simulator.h). How far ahead that is follows from the plan alone: there is no
// look-ahead to set.
//
// Immutable after creation; thread-compatible.
#ifndef GANTRY_GEMINI_PLAN_FOLLOWER_H_
#define GANTRY_GEMINI_PLAN_FOLLOWER_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "chunk/chunk_manager.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/trace.h"

namespace gantry {

class PlanFollower {
 public:
  // Of the most urgent fetches, this many are named at a time.
  static constexpr size_t kAheadMax = 32;

  struct Fetch {
    BlockIndex block;
    int64_t distance;  // moments from the cursor to the use; 0: the next one
  };
  // Where a block is, as far as fetching is concerned.
  enum class Presence : uint8_t {
    kAbsent,  // it can be fetched
    kThere,   // it is on the device, or on its way
    kNotYet,  // its content is still to be made, or it is just leaving: nothing to fetch now
  };

  // `lease_moments`: the first so many moments of the trace are leases. `activations`: the first
  // block, of one slot, of each activation of the trace; the others follow it. Keeps nothing of its
  // arguments. REQUIRES: `decision` was made for `trace`, whose blocks are BlockIndex.
  PlanFollower(const Trace& trace, const MovementDecision& decision, int64_t lease_moments,
               std::span<const BlockIndex> activations = {});

  // Whether `block` stays on the device after lease moment `moment`, which uses it.
  bool Stays(int64_t moment, BlockIndex block) const;
  // Whether `block` is on the device between lease moments `cursor` - 1 and `cursor` because it
  // stayed after its last use; false for what is fetched ahead. 0 <= cursor <= lease_moments().
  bool Holds(int64_t cursor, BlockIndex block) const;
  // By block: held before the step's first moment, or fetched by then as the slots allow.
  std::vector<bool> ThereAtStart() const;
  // Whether the parameter stays after its update on the device.
  bool StaysAfterUpdate(ChunkId chunk) const {
    return after_update_[static_cast<size_t>(chunk.value())];
  }
  // Whether the states stay on the device between updates, which run there.
  bool StatesStay(ChunkId chunk) const { return states_stay_[static_cast<size_t>(chunk.value())]; }

  // Clears `out` and names what may be fetched now, most urgent first: what the plan fetches, and
  // what it keeps but something else has pushed out. `cursor` is the next lease moment. Does not
  // block; O(moments and fetches that fit).
  void Ahead(int64_t cursor, const std::function<Presence(BlockIndex)>& presence,
             std::vector<Fetch>& out) const;

  int64_t write_reserve() const { return write_reserve_; }
  int64_t lease_moments() const { return static_cast<int64_t>(slack_.size()); }

 private:
  struct Use {
    BlockIndex block;
    int32_t slots;
    int32_t since;  // lease moments since the block's use before this one
    bool stays;
    bool held;     // until the next use, with the content that it has
    bool fetched;  // the plan brings it for this use
  };
  // A block's lease moments and whether it is held after each, in order.
  struct Hold {
    int64_t moment;
    bool held;
  };

  void NotePositions(size_t blocks);

  std::vector<int64_t> first_use_;  // by lease moment, into uses_
  std::vector<Use> uses_;
  std::vector<std::vector<Hold>> holds_;  // by block
  std::vector<bool> held_at_start_;       // by block
  std::vector<int64_t> slack_;            // by lease moment
  std::vector<bool> after_update_;        // by chunk
  std::vector<bool> states_stay_;         // by chunk
  int64_t write_reserve_;
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_PLAN_FOLLOWER_H_
