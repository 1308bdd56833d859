// `gantry bench transfer`: the copy lanes of an emulated device beside plain memcpy, and a file
// that streams through host slots to the device beside the slowest of its lanes.
#ifndef GANTRY_BENCHES_SUITE_TRANSFER_BENCHMARK_H_
#define GANTRY_BENCHES_SUITE_TRANSFER_BENCHMARK_H_

#include "absl/status/statusor.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/report.h"

namespace gantry {

// Rows h2d, d2h, both_directions, pipeline, pipeline_balanced, in GB/s. Blocks. Errors: those of
// device and file tier; kCancelled.
absl::StatusOr<BenchReport> RunTransferBenchmark(const BenchOptions& options);

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_TRANSFER_BENCHMARK_H_
