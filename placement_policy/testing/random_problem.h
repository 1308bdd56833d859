// Random movement problems for tests: small ones that can be solved exhaustively, and training
// steps with updates on the host or on the device, files, and a global norm. The same arguments
// give the same problem everywhere. Every result passes MovementProblem::Validate.
#ifndef GANTRY_PLACEMENT_POLICY_TESTING_RANDOM_PROBLEM_H_
#define GANTRY_PLACEMENT_POLICY_TESTING_RANDOM_PROBLEM_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "placement_policy/movement_problem.h"

namespace gantry {

enum class SmallProblem : uint8_t {
  kClean,            // unit blocks, only read, one capacity
  kCleanVarying,     // the same, capacity changes from moment to moment
  kDirtyVarying,     // unit blocks, some written, created or consumed, capacity changes
  kDirtySizes,       // the same with blocks of one or two slots
  kPalindromeDirty,  // blocks in order, then backwards and written; unit blocks
  kPalindromeSizes,  // the same with blocks of one or two slots
};
inline constexpr std::array kSmallProblems = {
    SmallProblem::kClean,      SmallProblem::kCleanVarying,    SmallProblem::kDirtyVarying,
    SmallProblem::kDirtySizes, SmallProblem::kPalindromeDirty, SmallProblem::kPalindromeSizes,
};
std::string_view ToString(SmallProblem kind);

// 6 to 12 moments, 3 to 6 blocks, which never fit all at once, unless a moment uses them all:
// capacities are 2 to 4 slots, or to 6 where blocks may have two. A slot is one byte and moves in 1
// to 4 ns, a moment computes for 0 to 6 ns. No host updates, no latencies.
MovementProblem RandomSmallProblem(SmallProblem kind, uint64_t seed);

// A training step: forward, backward with or without recomputing, and updates.
struct TrainingProblemOptions {
  enum class Files : uint8_t { kNone, kHalfDuplex, kFullDuplex };
  enum class DeviceUpdates : uint8_t { kNone, kWithinBackward, kAfterBackward, kNextForward };

  int32_t layers = 4;           // at least 1
  int32_t tiles_per_layer = 4;  // moments of a layer's forward pass, at least 1
  // Parameters of a layer in eighths of a chunk, at least 8; a tile uses the chunks that it
  // touches.
  int32_t eighths_per_layer = 24;
  bool recompute = true;
  bool tied = false;  // the first chunk is used again at the end of forward
  DeviceUpdates device_updates = DeviceUpdates::kNone;  // of about a third of the chunks
  Files files = Files::kNone;                           // holding about half of the states
  bool wait_for_norm = false;
  // Slots beside those that each moment cannot do without, per 100 chunks.
  int32_t spare_slots_percent = 30;
  // Time of one slot's copy per 100 of a full tile's compute.
  int32_t copy_percent = 100;
  int64_t latency_nanoseconds = 0;  // of every lane
};
// Draws everything but the latency: 1 to 6 layers of 1 to 5 tiles.
TrainingProblemOptions RandomTrainingOptions(uint64_t seed);

// Times and capacities vary by `seed`. A slot is 1 MiB.
MovementProblem RandomTrainingProblem(const TrainingProblemOptions& options, uint64_t seed);

// Lets blocks stay, chosen at random, as long as they fit beside what each moment uses.
void LetBlocksStay(MovementProblem& problem, uint64_t seed);

// A step of the size of a model of 70 billion parameters: 80 layers, about 2,500 moments and 7,400
// uses.
TrainingProblemOptions LargeTrainingOptions();

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_TESTING_RANDOM_PROBLEM_H_
