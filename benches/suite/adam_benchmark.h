// `gantry bench adam`: the host optimizers beside a pass over the same memory that does nothing
// else.
#ifndef GANTRY_BENCHES_SUITE_ADAM_BENCHMARK_H_
#define GANTRY_BENCHES_SUITE_ADAM_BENCHMARK_H_

#include "absl/status/statusor.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/report.h"

namespace gantry {

// Rows adam (AdamW, all threads, best instruction set), adam_1_thread, adam_TARGET_1_thread, and
// optimizer_* for the other kinds and formats of state, in parameters per second; the ratio is that
// of bytes. Dispatches kernels of the whole process to one
// instruction set while it runs: nothing else may use them meanwhile. Blocks. Errors:
// kResourceExhausted without memory; kCancelled.
absl::StatusOr<BenchReport> RunAdamBenchmark(const BenchOptions& options);

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_ADAM_BENCHMARK_H_
