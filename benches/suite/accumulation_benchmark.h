// `gantry bench accumulation`: training steps of several micro-batches whose model does not fit the
// device, in both orders in which micro-batches can go through the layers.
#ifndef GANTRY_BENCHES_SUITE_ACCUMULATION_BENCHMARK_H_
#define GANTRY_BENCHES_SUITE_ACCUMULATION_BENCHMARK_H_

#include "absl/status/statusor.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/report.h"

namespace gantry {

// Rows accumulation_N, for 4 and 8 micro-batches: tokens per second layer by layer, beside one by
// one, on an emulated device that holds an eighth of the parameters and gradients and is fed at
// 2 GB/s each way. Figures: megabytes copied to the device in a step, one by one and layer by
// layer. Fails when the losses of the two differ. Blocks. Errors: those of the engine and the
// model; kCancelled.
absl::StatusOr<BenchReport> RunAccumulationBenchmark(const BenchOptions& options);

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_ACCUMULATION_BENCHMARK_H_
