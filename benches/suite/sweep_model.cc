#include "benches/suite/sweep_model.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "gemini/parameter_store.h"

namespace gantry {

absl::Status SweepModel::Register() {
  for (int64_t i = 0; i < options_.tensors; ++i) {
    GANTRY_ASSIGN_OR_RETURN(
        const TensorId tensor,
        store_->Register(
            {.name = StrCat("t", i), .shape = {options_.elements}, .dtype = DType::kBF16}, {}));
    tensors_.push_back(tensor);
  }
  return Step(OptimizerStep::NonFinite::kUpdateAnyway);
}

absl::Status SweepModel::Step(OptimizerStep::NonFinite non_finite) {
  const bool dry = store_->dry_run();
  GANTRY_RETURN_IF_ERROR(store_->BeginStep(
      {.optimizer = OptimizerStep{
           .learning_rate = 1e-4, .step = dry ? 1 : ++steps_, .non_finite = non_finite}}));
  GANTRY_RETURN_IF_ERROR(store_->BeginMicroBatch());
  // Last layer first, as a backward pass does.
  for (auto tensor = tensors_.rbegin(); tensor != tensors_.rend(); ++tensor) {
    GANTRY_RETURN_IF_ERROR(WriteGradient(*tensor));
    store_->GradientReady(*tensor);
  }
  return store_->EndStep().status();
}

absl::Status SweepModel::WriteGradient(TensorId tensor) {
  const ParameterUse use{tensor, ParameterAccess::kGradient};
  GANTRY_ASSIGN_OR_RETURN(const Lease lease,
                          store_->Acquire(std::span(&use, 1), "gradient", Phase::kBackward));
  if (store_->dry_run()) return absl::OkStatus();
  if (options_.compute > 0) options_.clock->SleepUntil(options_.clock->Now() + options_.compute);
  std::fill_n(reinterpret_cast<BFloat16*>(lease[0].gradient), lease[0].elements, BFloat16(1e-3f));
  return absl::OkStatus();
}

}  // namespace gantry
