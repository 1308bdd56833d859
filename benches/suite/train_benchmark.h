// What training steps of real models' shapes give on this CPU: GPT-2 124M and SmolLM2 135M, in bf16
// and f32, 4 sequences of 256 tokens and one of 512, everything resident; and the same steps with a
// tenth of the state on the device, a quarter on the host and the rest in files. Random weights and
// tokens: the arithmetic is what counts. benches/torch_train.py measures PyTorch beside it.
#ifndef GANTRY_BENCHES_SUITE_TRAIN_BENCHMARK_H_
#define GANTRY_BENCHES_SUITE_TRAIN_BENCHMARK_H_

#include "absl/status/statusor.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/report.h"

namespace gantry {

// Rows train_MODEL_TYPE_BATCHxLENGTH, tokens/s of resident steps, and ..._tenth, with the resident
// step as its bound; those whose names contain options.only. Errors: those of the engine.
absl::StatusOr<BenchReport> RunTrainBenchmark(const BenchOptions& options);

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_TRAIN_BENCHMARK_H_
