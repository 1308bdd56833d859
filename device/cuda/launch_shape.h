// How many threads a kernel runs with: a grid of blocks of threads, as in CUDA.
#ifndef GANTRY_DEVICE_CUDA_LAUNCH_SHAPE_H_
#define GANTRY_DEVICE_CUDA_LAUNCH_SHAPE_H_

#include <cstdint>

namespace gantry {

struct Dimensions {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;

  int64_t count() const { return static_cast<int64_t>(x) * y * z; }
  friend bool operator==(const Dimensions&, const Dimensions&) = default;
};

struct LaunchShape {
  Dimensions grid;
  Dimensions block;          // at most 1024 threads
  int64_t shared_bytes = 0;  // of dynamic shared memory
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_LAUNCH_SHAPE_H_
