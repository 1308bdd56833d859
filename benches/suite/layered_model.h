// A model of equal layers whose operators take a set time on a device that leaves the processor
// free: forward a quarter of it, backward, with what is computed again, the rest. Each layer is a
// few tensors of one chunk; each operator leases a layer.
//
// One thread, that of the store.
#ifndef GANTRY_BENCHES_SUITE_LAYERED_MODEL_H_
#define GANTRY_BENCHES_SUITE_LAYERED_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/ids.h"
#include "gemini/parameter_store.h"

namespace gantry {

class LayeredModel {
 public:
  struct Options {
    int64_t layers;
    int64_t tensors_per_layer;
    int64_t elements;  // of a tensor
    Clock* clock;
  };
  // `store` outlives the model.
  LayeredModel(ParameterStore* store, const Options& options) : store_(store), options_(options) {}

  // bf16 parameters; then one step without kernels, so that the trace is known at Seal.
  absl::Status Register();
  // From the next step on, `compute` a step. The key names the steps' trace.
  void SetCompute(Nanoseconds compute, std::string trace_key);
  // One step; returns when its result is decided, updates may still run. Errors: the store's.
  absl::Status Step();

  const std::string& trace_key() const { return trace_key_; }

 private:
  absl::Status Operate(int64_t layer, ParameterAccess access, Nanoseconds time);

  ParameterStore* store_;
  Options options_;
  std::vector<TensorId> tensors_;  // layer by layer
  Nanoseconds compute_ = 0;
  std::string trace_key_ = "train";
  int64_t steps_ = 0;
};

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_LAYERED_MODEL_H_
