// What may be done with a chunk's parameter block now, as one table of legal transitions.
//
//   kFree              no content yet, or released
//   kHold              has content, nobody uses it
//   kCompute           leased by an operator: it may not move
//   kHoldAfterBackward an operator's backward pass used it; more gradients may come
//   kReadyForReduce    every gradient of the step is in (or none will come)
//
// An illegal transition is a programmer error: it aborts and prints the chunk, both states and the
// last transitions. One machine per chunk, not thread-safe: its owner's lock guards it.
#ifndef GANTRY_CHUNK_BLOCK_STATE_H_
#define GANTRY_CHUNK_BLOCK_STATE_H_

#include <array>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include "base/ids.h"

namespace gantry {

enum class ChunkState : uint8_t { kFree, kHold, kCompute, kHoldAfterBackward, kReadyForReduce };
inline constexpr int kChunkStateCount = 5;
std::string_view Name(ChunkState state);  // "free", "hold", "hold after backward", ...
inline std::ostream& operator<<(std::ostream& out, ChunkState state) { return out << Name(state); }

// kChunkTransitions[from][to]: whether `to` may follow `from`.
inline constexpr std::array<std::array<bool, kChunkStateCount>, kChunkStateCount>
    kChunkTransitions = {{
        // to:     free   hold  compute  after  ready
        /* free */ {false, true, false, false, false},  // initialised
        /* hold */ {true, false, true, false, true},    // released | leased | untouched in backward
        /* comp */ {false, true, false, true, false},   // forward, backward lease released
        /* aftr */ {false, true, true, false, true},    // abandoned | leased again | gradients in
        /* redy */ {false, true, false, false, false},  // updated, or the step was skipped
    }};

constexpr bool IsLegalTransition(ChunkState from, ChunkState to) {
  return kChunkTransitions[static_cast<size_t>(from)][static_cast<size_t>(to)];
}

class ChunkStateMachine {
 public:
  static constexpr int64_t kHistorySize = 16;

  // Starts in kFree.
  explicit ChunkStateMachine(ChunkId chunk) : chunk_(chunk) {}

  ChunkId chunk() const { return chunk_; }
  ChunkState state() const { return state_; }
  // `moment` (any count that orders events, such as the absolute trace moment) is only remembered.
  // REQUIRES: IsLegalTransition(state(), to); aborts with History() otherwise.
  void Transition(ChunkState to, int64_t moment);
  // The last kHistorySize transitions, oldest first, one a line: "  moment 7: hold -> compute".
  std::string History() const;

 private:
  struct Entry {
    int64_t moment;
    ChunkState from;
    ChunkState to;
  };

  ChunkId chunk_;
  ChunkState state_ = ChunkState::kFree;
  int64_t transition_count_ = 0;
  std::array<Entry, kHistorySize> history_{};  // ring: entry i is at i % kHistorySize
};

}  // namespace gantry

#endif  // GANTRY_CHUNK_BLOCK_STATE_H_
