// How a Trainer evaluates, and what it makes of it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "gemini/parameter_store.h"
#include "trainer/booster/metrics.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/trainer.h"
#include "trainer/booster/training_batch.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/data/token_source.h"
#include "trainer/models/decoder.h"

namespace gantry {
namespace {

constexpr char kEvaluateKey[] = "evaluate";

}  // namespace

absl::Status Trainer::EvaluateAndTell() {
  GANTRY_ASSIGN_OR_RETURN(const LossSum loss, EvaluateStep());
  EvaluationMetrics metrics{
      .step = position_.step,
      .loss = loss.loss_sum / static_cast<double>(std::max<int64_t>(loss.valid_tokens, 1)),
      .tokens = loss.valid_tokens};
  metrics.best = Remember(metrics.loss);
  summary_.validation_last = metrics;
  summary_.validation_best = position_.best;
  if (options_.observer != nullptr) options_.observer->OnEvaluation(metrics);
  return metrics.best ? SaveAsBest() : absl::OkStatus();
}

// Whether it is the lowest so far. A loss that is no number is worse than any. What was not due, at
// the end of a run, does not count for early stopping: a longer run would not have it.
bool Trainer::Remember(double validation_loss) {
  position_.evaluated_step = position_.step;
  if (evaluation_is_due()) {
    const double needed = options_.config->train.early_stop_improvement;
    const bool improved = position_.loss_to_beat.has_value()
                              ? validation_loss < *position_.loss_to_beat - needed
                              : std::isfinite(validation_loss);
    if (improved) position_.loss_to_beat = validation_loss;
    position_.evaluations_without_improvement =
        improved ? 0 : position_.evaluations_without_improvement + 1;
  }
  const bool best = position_.best.has_value() ? validation_loss < position_.best->loss
                                               : std::isfinite(validation_loss);
  if (best) position_.best = BestEvaluation{.step = position_.step, .loss = validation_loss};
  return best;
}

bool Trainer::stopped_early() const {
  const int64_t most = options_.config->train.early_stop_evaluations;
  return most > 0 && position_.evaluations_without_improvement >= most;
}

absl::StatusOr<LossSum> Trainer::EvaluateStep() {
  GANTRY_CHECK(evaluates());
  ParameterStore& store = *options_.context.store;
  const int64_t batches = options_.config->train.eval_batches;
  const int64_t batch_size = options_.config->data.batch_size;
  GANTRY_RETURN_IF_ERROR(store.BeginStep(
      {.trace_key = kEvaluateKey, .micro_batches = batches, .optimizer = std::nullopt}));
  LossSum total;
  absl::Status status;
  for (int64_t i = 0; i < batches && status.ok(); ++i) {
    status = store.BeginMicroBatch();
    if (!status.ok()) break;
    absl::StatusOr<SampledTokens> sampled = options_.validation->ReadEvenly(
        {.first = i * batch_size, .count = batch_size, .total = batches * batch_size});
    status = sampled.status();
    if (!status.ok()) break;
    const TrainingBatch batch(*std::move(sampled));
    const absl::StatusOr<LossSum> loss = model_->Loss(batch.view());
    status = loss.status();
    if (!status.ok()) break;
    total.loss_sum += loss->loss_sum;
    total.valid_tokens += loss->valid_tokens;
  }
  const absl::Status end = store.EndStep().status();
  GANTRY_RETURN_IF_ERROR(status);
  GANTRY_RETURN_IF_ERROR(end);
  return total;
}

}  // namespace gantry
