// `gantry bench lease`: what a lease of resident parameters costs, with nothing to move.
#ifndef GANTRY_BENCHES_SUITE_LEASE_BENCHMARK_H_
#define GANTRY_BENCHES_SUITE_LEASE_BENCHMARK_H_

#include "absl/status/statusor.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/report.h"

namespace gantry {

// Rows lease_ns (one tensor), lease_3_tensors_ns, lease_off_plan_ns (two tensors, a lease that
// the trace does not expect): acquire and release together, in nanoseconds, beside the aim of 100.
// Blocks. Errors: those of the engine; kCancelled.
absl::StatusOr<BenchReport> RunLeaseBenchmark(const BenchOptions& options);

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_LEASE_BENCHMARK_H_
