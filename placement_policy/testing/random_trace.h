// Random traces for tests, and the dice that draw them.
#ifndef GANTRY_PLACEMENT_POLICY_TESTING_RANDOM_TRACE_H_
#define GANTRY_PLACEMENT_POLICY_TESTING_RANDOM_TRACE_H_

#include <array>
#include <cstdint>

#include "base/random.h"
#include "placement_policy/trace.h"

namespace gantry {

inline constexpr std::array<Phase, 3> kAllPhases = {Phase::kForward, Phase::kBackward,
                                                    Phase::kOptimizer};

// A sequence of random numbers that the seed determines.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_({.seed = seed, .stream = 0}) {}
  int64_t Below(int64_t bound) { return random_.Below(bound, index_++); }
  uint64_t Bits() { return random_.Bits(index_++); }
  // An element of a list that is not empty.
  template <typename List>
  auto& Pick(List&& list) {
    return list[static_cast<size_t>(Below(static_cast<int64_t>(list.size())))];
  }

 private:
  Random random_;
  uint64_t index_ = 0;
};

// A valid trace with some absent blocks (0 slots), empty moments, repeated uses, and often chunks
// and saved activations. Its uses are in the order of the moments, and there is at least one.
Trace RandomTrace(Dice& dice);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_TESTING_RANDOM_TRACE_H_
