// `gantry bench plan`: training steps that follow movement plans on an emulated device, beside what
// the plans predict and beside the same steps with everything on the device.
#ifndef GANTRY_BENCHES_SUITE_PLAN_BENCHMARK_H_
#define GANTRY_BENCHES_SUITE_PLAN_BENCHMARK_H_

#include "absl/status/statusor.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/report.h"

namespace gantry {

// Operators take a set time, in proportion to the lanes as on an RTX 4090. For device budgets of 5,
// 10 and 25 percent of the training state, at 8192 and 2048 tokens a step, rows step_B_T and
// practicality_B_T (step_5_8k, say); step_files and practicality_files with a tenth on the device,
// host memory for a quarter and the rest in `directory`; and step_resident_T beside them. Blocks.
// Errors: those of the engine; kCancelled.
absl::StatusOr<BenchReport> RunPlanBenchmark(const BenchOptions& options);

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_PLAN_BENCHMARK_H_
