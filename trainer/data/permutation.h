// A random order of 0 .. count-1 that needs no memory: place n is a pure function of (seed, stream,
// n), by a Feistel network over the next power of four, walked until it falls within the count.
//
// Immutable and thread-safe. Value type.
#ifndef GANTRY_TRAINER_DATA_PERMUTATION_H_
#define GANTRY_TRAINER_DATA_PERMUTATION_H_

#include <cstdint>

namespace gantry {

class Permutation {
 public:
  struct Options {
    uint64_t seed;
    uint64_t stream;  // an epoch, for example
    int64_t count;    // at least 1
  };
  explicit Permutation(Options options);

  // REQUIRES: 0 <= place < count. Each place gives another number below count.
  int64_t At(int64_t place) const;

 private:
  uint64_t Once(uint64_t value) const;

  Options options_;
  int half_bits_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_DATA_PERMUTATION_H_
