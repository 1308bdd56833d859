// How fast a model's folder is loaded, beside reading its files, and how much memory that takes,
// beside the budgets.
#ifndef GANTRY_BENCHES_SUITE_LOAD_BENCHMARK_H_
#define GANTRY_BENCHES_SUITE_LOAD_BENCHMARK_H_

#include "absl/status/statusor.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/report.h"

namespace gantry {

// Makes a sharded model of about --size in the directory, which is gone afterwards. Each time its
// files are read the page cache has been told to forget them. Errors: those of the parts.
absl::StatusOr<BenchReport> RunLoadBenchmark(const BenchOptions& options);

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_LOAD_BENCHMARK_H_
