// A random use of the file tier by itself, on a simulated machine: extents are written, read, freed
// and cancelled in virtual time, over one to three directories, and every read is compared with
// what was written last.
#ifndef GANTRY_TESTS_SIMULATION_STORE_RUN_H_
#define GANTRY_TESTS_SIMULATION_STORE_RUN_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/testing/fault_plan.h"

namespace gantry {

struct StoreRunOptions {
  uint64_t seed;        // draws sizes, directories and operations
  uint64_t order_seed;  // of the event loop
  FaultPlan* faults;
};

struct StoreRunResult {
  absl::Status error;  // the first one that an operation reported, cancellations aside
  std::string wrong;   // what must never be: empty
  int64_t events = 0;
  Nanoseconds end = 0;  // virtual
  int64_t reads_compared = 0;
};

StoreRunResult RunStore(const StoreRunOptions& options);

// What the seed draws, in one line.
std::string DescribeStoreRun(uint64_t seed);

}  // namespace gantry

#endif  // GANTRY_TESTS_SIMULATION_STORE_RUN_H_
