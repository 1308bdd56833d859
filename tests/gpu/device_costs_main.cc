// Prints what the calls behind this machine's first GPU cost, as JSON; without one, why not.
#include <cstdio>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "tests/gpu/device_costs.h"
#include "tests/gpu/gpus.h"

int main() {
  const auto gpu = gantry::OpenGpu(0);
  if (!gpu.ok()) {
    std::printf("not measured: %s\n", std::string(gpu.status().message()).c_str());
    return 0;
  }
  std::vector<gantry::Bytes> sizes;
  for (const gantry::Bytes size :
       {gantry::Bytes(2 << 20), gantry::Bytes(8 << 20), gantry::Bytes(32 << 20)}) {
    if (size.count() % (*gpu)->device->slot_granularity().count() == 0) sizes.push_back(size);
  }
  const auto costs = gantry::MeasureDeviceCosts({.calls = (*gpu)->calls.get(),
                                                 .device = (*gpu)->device.get(),
                                                 .clock = &(*gpu)->clock,
                                                 .slot_bytes = sizes,
                                                 .slots = 64,
                                                 .rounds = 9});
  if (!costs.ok()) {
    std::fprintf(stderr, "device_costs: %s\n", std::string(costs.status().message()).c_str());
    return 1;
  }
  std::printf("%s\n", costs->c_str());
  return 0;
}
