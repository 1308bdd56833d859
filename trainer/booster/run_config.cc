#include "trainer/booster/run_config.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "chunk/chunk_layout.h"
#include "chunk/optimizer_states.h"
#include "device/device.h"
#include "gemini/optimizer_step.h"
#include "trainer/booster/learning_rate.h"
#include "trainer/booster/loss_scale.h"
#include "trainer/booster/token_sampler.h"
#include "trainer/chat_template/civil_time.h"
#include "trainer/data/byte_corpus.h"
#include "trainer/models/decoder_config.h"

namespace gantry {
namespace {

// A micro-batch's token ids are in memory outside any budget.
constexpr int64_t kTokensPerMicroBatchMax = int64_t{1} << 26;

absl::Status Within(absl::Status status, const char* section) {
  if (status.ok()) return status;
  return InvalidArgument(section, ": ", FromAbsl(status.message()));
}

absl::Status ValidateMemory(const MemoryConfig& memory) {
  if (memory.device_memory <= Bytes::Zero()) {
    return InvalidArgument(
        "memory.device_memory: a budget of 0 holds nothing; give at least a few "
        "MiB, like 128MiB");
  }
  if (memory.device == DeviceTopology::kDiscrete && memory.host_memory <= Bytes::Zero()) {
    return InvalidArgument(
        "memory.host_memory: an emulated device needs host memory beside it; "
        "give at least a few MiB, like 512MiB, or set memory.device=unified");
  }
  if (!memory.spill_shares.empty() && memory.spill_shares.size() != memory.spill_dirs.size()) {
    return InvalidArgument("memory.spill_shares: there must be as many as memory.spill_dirs, ",
                           memory.spill_dirs.size(), ", not ", memory.spill_shares.size());
  }
  if (memory.chunk_elements % kChunkGranularityElements != 0) {
    return InvalidArgument("memory.chunk_elements: must be 0 or a multiple of ",
                           kChunkGranularityElements, ", not ", memory.chunk_elements);
  }
  return absl::OkStatus();
}

absl::Status ValidateData(const RunConfig& config) {
  const DataConfig& data = config.data;
  if (data.sequence_length > config.model.max_sequence) {
    return InvalidArgument("data.sequence_length: ", data.sequence_length,
                           " tokens are more than model.max_sequence, ", config.model.max_sequence);
  }
  if (data.batch_size > kTokensPerMicroBatchMax / data.sequence_length) {
    return InvalidArgument("data: sequence_length x batch_size is more than ",
                           kTokensPerMicroBatchMax, " tokens: use data.accumulation");
  }
  GANTRY_RETURN_IF_ERROR(Within(ParseDate(data.date).status(), "data.date"));
  if (data.files.empty()) {
    return InvalidArgument("data.files: name the text to train on, as in --data.files=book.txt");
  }
  return absl::OkStatus();
}

}  // namespace

DecoderConfig DefaultModel() {
  return {.layers = 4,
          .width = 256,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 64,
          .ffn_width = 704,
          .vocabulary = kByteVocabulary,
          .max_sequence = 1024,
          .recompute = Recompute::kPlanned};
}

absl::Status ValidateModel(const RunConfig& config) {
  GANTRY_RETURN_IF_ERROR(Within(ValidateDecoderConfig(config.model), "model"));
  if (config.model_path.empty() && config.model.vocabulary != kByteVocabulary) {
    return InvalidArgument("model.vocabulary: text is bytes, so it must be ", kByteVocabulary,
                           ", not ", config.model.vocabulary);
  }
  GANTRY_RETURN_IF_ERROR(ValidateMemory(config.memory));
  for (const std::string& stop : config.generate.stop) {
    if (stop.empty()) return InvalidArgument("generate.stop: an empty text stops nothing");
  }
  return Within(ValidateSampling(config.generate.sampling), "generate");
}

namespace {

// What looks at evaluations needs them.
absl::Status ValidateEvaluation(const RunConfig& config) {
  const TrainConfig& train = config.train;
  const char* key = train.early_stop_evaluations > 0 ? "train.early_stop_evaluations"
                    : train.keep_best                ? "train.keep_best"
                                                     : nullptr;
  if (key == nullptr) return absl::OkStatus();
  if (train.eval_every == 0) {
    return InvalidArgument(key, ": needs evaluations: set train.eval_every");
  }
  if (config.data.validation_fraction == 0.0) {
    return InvalidArgument(key, ": needs text to evaluate on: set data.validation_fraction");
  }
  if (train.keep_best && train.checkpoint_dir.empty()) {
    return InvalidArgument("train.keep_best: needs a folder to keep it in: set ",
                           "train.checkpoint_dir");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateTraining(const RunConfig& config) {
  GANTRY_RETURN_IF_ERROR(ValidateModel(config));
  GANTRY_RETURN_IF_ERROR(
      Within(CheckSupported(config.optimizer.kind, config.optimizer.state_format), "optimizer"));
  GANTRY_RETURN_IF_ERROR(Within(CheckUpdateOrder(config.optimizer.kind, config.memory.update_order),
                                "memory.update_order"));
  GANTRY_RETURN_IF_ERROR(Within(ValidateSchedule(ScheduleOf(config)), "schedule"));
  if (config.model.parameter_dtype == DType::kF16) {
    GANTRY_RETURN_IF_ERROR(
        Within(ValidateLossScale(config.optimizer.loss_scale), "optimizer.initial_loss_scale"));
  }
  GANTRY_RETURN_IF_ERROR(ValidateEvaluation(config));
  if (!config.train.save_model.empty() && config.model_path.empty()) {
    return InvalidArgument(
        "train.save_model: a model over bytes has no tokenizer that others could ",
        "read; name a folder to begin with in model.path");
  }
  return ValidateData(config);
}

double Beta1Of(const OptimizerConfig& optimizer) { return optimizer.beta1.value_or(0.9); }

double Beta2Of(const OptimizerConfig& optimizer) {
  if (optimizer.beta2.has_value()) return *optimizer.beta2;
  switch (optimizer.kind) {
    case OptimizerKind::kAdamW:
    case OptimizerKind::kAdam:
      return 0.95;
    case OptimizerKind::kLion:
      return 0.99;
    case OptimizerKind::kSgd:
    case OptimizerKind::kAdafactor:
      break;
  }
  return 0.0;
}

LearningRateSchedule ScheduleOf(const RunConfig& config) {
  LearningRateSchedule schedule = config.schedule;
  // A run that is shorter than its warm-up ends within it.
  if (schedule.total_steps == 0) {
    schedule.total_steps = std::max(config.train.steps, schedule.warmup_steps);
  }
  return schedule;
}

DType ComputeDTypeOf(const DecoderConfig& model) {
  return model.parameter_dtype == DType::kF16 ? DType::kF32 : model.parameter_dtype;
}

DType GradientDTypeOf(const RunConfig& config) {
  return config.data.accumulation > 1 ? DType::kF32 : config.model.parameter_dtype;
}

int ThreadsOf(const TrainConfig& config) {
  if (config.threads > 0) return static_cast<int>(config.threads);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return 1;
  return std::max(1, CPU_COUNT(&cpus));
}

int64_t TokensPerStep(const DataConfig& data) {
  return data.sequence_length * data.batch_size * data.accumulation;
}

}  // namespace gantry
