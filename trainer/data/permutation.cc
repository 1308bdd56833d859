#include "trainer/data/permutation.h"

#include <bit>
#include <cstdint>

#include "base/check.h"
#include "base/random.h"

namespace gantry {
namespace {

constexpr uint64_t kRounds = 6;

}  // namespace

Permutation::Permutation(Options options) : options_(options) {
  GANTRY_CHECK_GE(options.count, 1);
  const int bits = std::bit_width(static_cast<uint64_t>(options.count - 1));
  half_bits_ = (bits + 1) / 2;
}

uint64_t Permutation::Once(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const auto words = Philox(options_.seed, right * kRounds + round, options_.stream);
    const uint64_t mixed = left ^ (words[0] & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

int64_t Permutation::At(int64_t place) const {
  GANTRY_CHECK(place >= 0 && place < options_.count) << place << " of " << options_.count;
  if (options_.count == 1) return 0;
  // At most every fourth value lies within, so a few turns suffice.
  auto value = static_cast<uint64_t>(place);
  do {
    value = Once(value);
  } while (value >= static_cast<uint64_t>(options_.count));
  return static_cast<int64_t>(value);
}

}  // namespace gantry
