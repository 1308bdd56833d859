// Counter-based random numbers (Philox 4x32-10, Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC'11): the value is a pure function of (seed, stream, index), so results do not depend
// on threads, chunking or placement, and a checkpoint needs only the three integers.
#ifndef GANTRY_BASE_RANDOM_H_
#define GANTRY_BASE_RANDOM_H_

#include <array>
#include <cstdint>

namespace gantry {

// Four 32-bit words for one counter.
std::array<uint32_t, 4> Philox(uint64_t key, uint64_t counter_low, uint64_t counter_high);

// A stream of numbers with random access by index. Value type, copyable.
class Random {
 public:
  struct Options {
    uint64_t seed;
    uint64_t stream;
  };
  explicit Random(Options options) : options_(options) {}

  uint64_t Bits(uint64_t index) const;
  double Uniform(uint64_t index) const;                // [0, 1)
  double Normal(uint64_t index) const;                 // mean 0, standard deviation 1 (Box-Muller)
  int64_t Below(int64_t bound, uint64_t index) const;  // [0, bound), bound >= 1, bias < 2^-32

 private:
  Options options_;
};

}  // namespace gantry

#endif  // GANTRY_BASE_RANDOM_H_
