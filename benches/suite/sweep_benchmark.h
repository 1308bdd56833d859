// `gantry bench sweep`: the optimizer step of an engine whose optimizer states all lie in files,
// beside the time the file tier alone takes for the same bytes.
#ifndef GANTRY_BENCHES_SUITE_SWEEP_BENCHMARK_H_
#define GANTRY_BENCHES_SUITE_SWEEP_BENCHMARK_H_

#include "absl/status/statusor.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/report.h"

namespace gantry {

// Rows sweep (unified device; updates begin as gradients come in), sweep_after_norm (updates wait
// for the norm of all gradients), sweep_speculative (they do not, and are taken back if need be),
// sweep_emulated (a device with memory of its own): seconds per step; sweep_bytes_per_parameter and
// its kin: file bytes per parameter and step as the engine counts them; host_overhead: memory
// beside the slots, in percent of the budget. Blocks. Errors: those of engine and file tier;
// kCancelled.
absl::StatusOr<BenchReport> RunSweepBenchmark(const BenchOptions& options);

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_SWEEP_BENCHMARK_H_
