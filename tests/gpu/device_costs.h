// What the calls behind a CUDA device cost, by slot size: making, mapping and unmapping slots, and
// copies through lanes beside copies on a bare stream.
#ifndef GANTRY_TESTS_GPU_DEVICE_COSTS_H_
#define GANTRY_TESTS_GPU_DEVICE_COSTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "device/cuda/cuda_calls.h"
#include "device/device.h"

namespace gantry {

struct DeviceCostsOptions {
  CudaCalls* calls;  // of the device
  Device* device;
  const Clock* clock;
  std::vector<Bytes> slot_bytes;  // multiples of the device's granularity
  int64_t slots;                  // of each size, in device and in host memory
  int64_t rounds;                 // medians are taken of so many
};

// One JSON object: for each slot size, microseconds a slot to make, map and unmap, and gigabytes a
// second up, down, and both ways at once; on bare streams too. Errors: the device's.
absl::StatusOr<std::string> MeasureDeviceCosts(const DeviceCostsOptions& options);

}  // namespace gantry

#endif  // GANTRY_TESTS_GPU_DEVICE_COSTS_H_
