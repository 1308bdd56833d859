// A model that is all optimizer: its operators write gradients and compute nothing, so that a
// training step of it is the sweep over the optimizer's states.
//
// One thread, that of the store.
#ifndef GANTRY_BENCHES_SUITE_SWEEP_MODEL_H_
#define GANTRY_BENCHES_SUITE_SWEEP_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/ids.h"
#include "gemini/parameter_store.h"

namespace gantry {

class SweepModel {
 public:
  struct Options {
    int64_t tensors;
    int64_t elements;  // of each
    // Each gradient takes this long to compute, on a device that leaves the processor free.
    Nanoseconds compute = 0;
    Clock* clock;
  };
  // `store` outlives the model.
  SweepModel(ParameterStore* store, const Options& options) : store_(store), options_(options) {}

  // bf16 parameters; then one step without kernels, so that the trace is known at Seal.
  absl::Status Register();
  // One step; returns when its result is decided, updates may still run. Errors: the store's.
  absl::Status Step(OptimizerStep::NonFinite non_finite);

  int64_t parameters() const { return options_.tensors * options_.elements; }

 private:
  absl::Status WriteGradient(TensorId tensor);

  ParameterStore* store_;
  Options options_;
  std::vector<TensorId> tensors_;
  int64_t steps_ = 0;
};

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_SWEEP_MODEL_H_
