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
#include "trainer/booster/loss_scale.h"
#include "trainer/booster/parameter_groups.h"
#include "trainer/booster/token_sampler.h"
#include "trainer/data/example_encoder.h"
#include "trainer/data/example_token_source.h"
#include "trainer/models/decoder_config.h"

namespace gantry {

struct DataConfig {
  std::vector<std::string> files;
  int64_t sequence_length = 256;
  int64_t batch_size = 8;    // sequences per micro-batch
  int64_t accumulation = 1;  // micro-batches per step
  double validation_fraction = 0.05;
  // Of files of examples.
  Packing packing = Packing::kPacked;
  ScoredTurns scored_turns = ScoredTurns::kAll;
  bool skip_bad_lines = false;
  std::string date = "2024-07-26";  // that chat templates see
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
  std::vector<ParameterGroup> groups = {};
  LossScaleOptions loss_scale;  // of f16 only
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
  bool keep_best = false;       // beside those: that of the lowest validation loss
  std::string resume = "auto";  // "auto", "never", or the path of a checkpoint
  int64_t log_every = 1;
  int64_t eval_every = 50;  // 0: never
  int64_t eval_batches = 8;
  int64_t early_stop_evaluations = 0;   // without improvement, then the run ends; 0: it does not
  double early_stop_improvement = 0.0;  // what counts as one: more than this
  std::string save_model;       // a new Hugging Face folder for the trained model; empty: none
  std::string log_file;         // JSON lines; empty: none
  std::string tensorboard_dir;  // event files; empty: none
  std::string trace_file;       // for the Perfetto viewer; empty: none
  std::string report;           // an HTML page about the run's steps; empty: none
  std::string report_trace;     // the same step for the Perfetto viewer; empty: none
};

struct GenerateConfig {
  std::string checkpoint;  // a checkpoint or a directory of them
  std::string prompt = "\n";
  std::string prompts_file;  // a prompt a line, instead of `prompt`; empty: none
  bool chat = false;         // a prompt is a message to the model\'s chat template
  int64_t batch = 8;         // prompts that go through the model together
  int64_t tokens = 256;
  std::vector<std::string> stop = {};  // texts that end a text
  SamplingOptions sampling{.temperature = 0.8, .top_k = 40, .top_p = 1.0, .seed = 1};
};

// Bytes as tokens; the shape of about 3 million parameters.
DecoderConfig DefaultModel();

struct RunConfig {
  // A Hugging Face folder that the model and its tokenizer come from, and then says the shape;
  // empty: `model`, over bytes.
  std::string model_path;
  DecoderConfig model = DefaultModel();
  DataConfig data;
  OptimizerConfig optimizer;
  LearningRateSchedule schedule;  // see ScheduleOf for total_steps = 0
  MemoryConfig memory;
  TrainConfig train;
  GenerateConfig generate;
};

// Settings of a checkpoint beside those of the config, where the model came from a folder.
inline constexpr char kModelConfigSetting[] = "model.config";  // its config.json
inline constexpr char kModelPathSetting[] = "model.path";      // the folder
inline constexpr char kTokenizerSetting[] = "tokenizer";       // its fingerprint

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
// Of activations: that of the parameters, but f32 for f16, in which the CPU cannot compute.
DType ComputeDTypeOf(const DecoderConfig& model);
// Micro-batches add up in f32; a single one needs no more than the parameters' own type.
DType GradientDTypeOf(const RunConfig& config);
// config.train.threads, or the CPUs that this process may use.
int ThreadsOf(const TrainConfig& config);
int64_t TokensPerStep(const DataConfig& data);

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_RUN_CONFIG_H_
