// The benchmarks by name. Stateless.
#ifndef GANTRY_BENCHES_SUITE_BENCHMARKS_H_
#define GANTRY_BENCHES_SUITE_BENCHMARKS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/report.h"

namespace gantry {

// "io", "transfer", "adam", "sweep", "lease", "accumulation", "plan", "load", and "all", which is
// these in turn in one report; and "train", which takes minutes.
std::vector<std::string> BenchmarkNames();

// Blocks for up to a minute each. Errors: as UnknownBenchmark for another name; what the benchmark
// returns.
absl::StatusOr<BenchReport> RunBenchmark(std::string_view name, const BenchOptions& options);

// kInvalidArgument, with the nearest name.
absl::Status UnknownBenchmark(std::string_view name);

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_BENCHMARKS_H_
