// All that a run can be told, as plain data. trainer/cli/config.h fills it from YAML and the
// command line; programs may fill it themselves. The defaults train a small model in 1 GiB of
// memory.
#ifndef GANTRY_TRAINER_BOOSTER_RUN_CONFIG_H_
#define GANTRY_TRAINER_BOOSTER_RUN_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "chunk/optimizer_states.h"
#include "device/device.h"
#include "gemini/parameter_store.h"
#include "nvme/block_store.h"
#include "nvme/create_io_backend.h"
#include "placement_policy/policy.h"
#include "placement_policy/trace_file.h"
#include "trainer/booster/learning_rate.h"
#include "trainer/booster/token_sampler.h"
#include "trainer/models/decoder_config.h"

namespace gantry {

struct DataConfig {
  std::vector<std::string> files;
  int64_t sequence_length = 256;
  int64_t batch_size = 8;    // sequences per micro-batch
  int64_t accumulation = 1;  // micro-batches per step
  double validation_fraction = 0.05;
  uint64_t seed = 1;
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  StateFormat state_format = StateFormat::kF32;
  std::optional<double> beta1;  // empty: as Beta1Of
  std::optional<double> beta2;  // empty: as Beta2Of
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double max_gradient_norm = 1.0;  // 0: no clipping
};

struct MemoryConfig {
  DeviceTopology device = DeviceTopology::kUnified;
  Bytes device_memory = 1_GiB;
  Bytes host_memory = 1_GiB;                 // not used by a unified device
  std::vector<std::string> spill_dirs = {};  // folders; none: no file tier
  std::vector<double> spill_shares = {};     // relative speed of each of them; none: measured
  IoPreference io = IoPreference::kAuto;
  Verification verification = Verification::kEveryRead;
  UpdateOrder update_order = UpdateOrder::kExact;
  std::string policy = "planned";
  StaticFractions static_fractions = {};
  int64_t look_ahead = 8;
  int64_t chunk_elements = 0;    // 0: chosen from the model and the budgets
  Bytes lane_bandwidth = 0_B;    // per second, of an emulated device; 0: as fast as memory
  Nanoseconds lane_latency = 0;  // of an emulated device
  std::string trace = {};        // file for the trace of a training step; empty: none
  TraceNames trace_names = TraceNames::kKeep;
};

// In which order a step's micro-batches go through the layers. The numbers are the same.
enum class AccumulationOrder : uint8_t {
  kAuto,        // whichever is expected to be faster within the budgets
  kMicroBatch,  // each forward and backward before the next begins
  kLayer,       // each layer serves all of them before the next layer; not with a tied head
};

struct TrainConfig {
  int64_t steps = 200;
  AccumulationOrder accumulation_order = AccumulationOrder::kAuto;
  int64_t threads = 0;         // 0: one per CPU
  uint64_t seed = 1;           // of the initial weights
  std::string checkpoint_dir;  // empty: nothing is saved
  int64_t checkpoint_every = 100;
  int64_t keep = 2;
  std::string resume = "auto";  // "auto", "never", or the path of a checkpoint
  int64_t log_every = 1;
  int64_t eval_every = 50;  // 0: never
  int64_t eval_batches = 8;
  std::string log_file;         // JSON lines; empty: none
  std::string tensorboard_dir;  // event files; empty: none
  std::string trace_file;       // for the Perfetto viewer; empty: none
  std::string report;           // an HTML page about the run's steps; empty: none
  std::string report_trace;     // the same step for the Perfetto viewer; empty: none
};

struct GenerateConfig {
  std::string checkpoint;  // a checkpoint or a directory of them
  std::string prompt = "\n";
  int64_t tokens = 256;
  SamplingOptions sampling{.temperature = 0.8, .top_k = 40, .top_p = 1.0, .seed = 1};
};

// Bytes as tokens; the shape of about 3 million parameters.
DecoderConfig DefaultModel();

struct RunConfig {
  DecoderConfig model = DefaultModel();
  DataConfig data;
  OptimizerConfig optimizer;
  LearningRateSchedule schedule;  // see ScheduleOf for total_steps = 0
  MemoryConfig memory;
  TrainConfig train;
  GenerateConfig generate;
};

// Whether the parts fit together, beyond each value's own range. Errors: kInvalidArgument naming
// the key.
absl::Status ValidateModel(const RunConfig& config);     // for any use of the model
absl::Status ValidateTraining(const RunConfig& config);  // the same, and all that training needs

// What is set, or the kind's own: beta1 is 0.9 (the momentum of sgd), beta2 0.95 of adamw and adam,
// 0.99 of lion; sgd has none (0).
double Beta1Of(const OptimizerConfig& optimizer);
double Beta2Of(const OptimizerConfig& optimizer);
// With the end of the decay, where none is given, at the last step (but not within the warm-up).
LearningRateSchedule ScheduleOf(const RunConfig& config);
// Micro-batches add up in f32; a single one needs no more than the parameters' own type.
DType GradientDTypeOf(const RunConfig& config);
// config.train.threads, or the CPUs that this process may use.
int ThreadsOf(const TrainConfig& config);
int64_t TokensPerStep(const DataConfig& data);

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_RUN_CONFIG_H_
