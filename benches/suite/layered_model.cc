#include "benches/suite/layered_model.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "chunk/chunk_layout.h"

namespace gantry {

absl::Status LayeredModel::Register() {
  for (int64_t i = 0; i < options_.layers * options_.tensors_per_layer; ++i) {
    GANTRY_ASSIGN_OR_RETURN(
        const TensorId tensor,
        store_->Register(
            {.name = StrCat("t", i), .shape = {options_.elements}, .dtype = DType::kBF16}, {}));
    tensors_.push_back(tensor);
  }
  return Step();
}

void LayeredModel::SetCompute(Nanoseconds compute, std::string trace_key) {
  compute_ = compute;
  trace_key_ = std::move(trace_key);
}

absl::Status LayeredModel::Step() {
  const bool dry = store_->dry_run();
  GANTRY_RETURN_IF_ERROR(store_->BeginStep(
      {.trace_key = trace_key_,
       .optimizer = OptimizerStep{.learning_rate = 1e-4,
                                  .step = dry ? 1 : ++steps_,
                                  .non_finite = OptimizerStep::NonFinite::kUpdateAnyway}}));
  GANTRY_RETURN_IF_ERROR(store_->BeginMicroBatch());
  const Nanoseconds forward = compute_ / 4 / options_.layers;
  const Nanoseconds backward = compute_ / options_.layers - forward;
  for (int64_t layer = 0; layer < options_.layers; ++layer) {
    GANTRY_RETURN_IF_ERROR(Operate(layer, ParameterAccess::kRead, forward));
  }
  for (int64_t layer = options_.layers; layer-- > 0;) {
    GANTRY_RETURN_IF_ERROR(Operate(layer, ParameterAccess::kReadAndGradient, backward));
    for (int64_t t = 0; t < options_.tensors_per_layer; ++t) {
      store_->GradientReady(tensors_[static_cast<size_t>(layer * options_.tensors_per_layer + t)]);
    }
  }
  return store_->EndStep().status();
}

absl::Status LayeredModel::Operate(int64_t layer, ParameterAccess access, Nanoseconds time) {
  std::vector<ParameterUse> uses;
  for (int64_t t = 0; t < options_.tensors_per_layer; ++t) {
    uses.push_back({tensors_[static_cast<size_t>(layer * options_.tensors_per_layer + t)], access});
  }
  const bool reads = access == ParameterAccess::kRead;
  GANTRY_ASSIGN_OR_RETURN(const Lease lease,
                          store_->Acquire(uses, reads ? "forward" : "backward",
                                          reads ? Phase::kForward : Phase::kBackward));
  if (store_->dry_run()) return absl::OkStatus();
  const Nanoseconds end = options_.clock->Now() + time;
  for (int i = 0; i < lease.size() && !reads; ++i) {
    std::memset(lease[i].gradient, 0, static_cast<size_t>(2 * lease[i].elements));
  }
  if (time > 0) options_.clock->SleepUntil(end);
  return absl::OkStatus();
}

}  // namespace gantry
