// The table itself; config_fields.cc holds what is done with a row.
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "placement_policy/policy.h"
#include "trainer/booster/learning_rate.h"
#include "trainer/booster/run_config.h"
#include "trainer/cli/config_fields.h"
#include "trainer/models/decoder_config.h"

namespace gantry {
namespace {

using enum FieldEffect;

constexpr int64_t kManySteps = 1'000'000'000;
// What is allocated before a budget is known stays small: one entry a layer, a table of positions,
// a cache of keys and values.
constexpr int64_t kLayersMax = 100'000;
constexpr int64_t kPositionsMax = 1 << 22;
constexpr int64_t kGeneratedMax = 1 << 16;
constexpr double kLargest = std::numeric_limits<double>::max();
// Above zero: the smallest that is no subnormal.
constexpr double kTiny = std::numeric_limits<double>::min();

template <typename Enum>
ChoiceField Choice(Enum& value, std::initializer_list<std::string_view> names) {
  return {.names = names,
          .get = [&value] { return static_cast<size_t>(value); },
          .set = [&value](size_t index) { value = static_cast<Enum>(index); }};
}

std::vector<std::string_view> Policies() {
  const std::span<const std::string_view> names = PolicyNames();
  return {names.begin(), names.end()};
}

using Fields = std::vector<ConfigField>;

void AddModel(DecoderConfig& c, std::string& path, Fields& fields) {
  const auto extent = [](int64_t& value) {
    return IntegerField{.value = &value, .least = 1, .most = kDecoderExtentMax};
  };
  const Fields rows = {
      {"model.path", kMachine, TextField{&path},
       "Hugging Face folder that the model and its tokenizer come from (--model=DIR is the same); "
       "empty: the shape below, with random weights, over bytes"},
      {"model.layers", kNumbers, IntegerField{&c.layers, 1, kLayersMax}, "decoder layers"},
      {"model.width", kNumbers, extent(c.width), "width of the residual stream"},
      {"model.heads", kNumbers, extent(c.heads), "query heads"},
      {"model.kv_heads", kNumbers, extent(c.kv_heads), "key and value heads; divides heads"},
      {"model.head_dim", kNumbers, extent(c.head_dim), "width of a head; even"},
      {"model.ffn_width", kNumbers, extent(c.ffn_width), "width inside the SwiGLU block"},
      {"model.max_sequence", kMachine, IntegerField{&c.max_sequence, 1, kPositionsMax},
       "longest sequence, in tokens"},
      {"model.rope_theta", kNumbers, RealField{&c.rope_theta, 1.0, kLargest},
       "base of the rotary positions' wavelengths"},
      {"model.norm_epsilon", kNumbers, RealField{&c.norm_epsilon, kTiny, 1.0},
       "added to the mean square in norms"},
      {"model.tie_embeddings", kNumbers, FlagField{&c.tie_embeddings},
       "one tensor for embedding and head"},
  };
  fields.insert(fields.end(), rows.begin(), rows.end());
}

void AddData(DataConfig& c, Fields& fields) {
  const Fields rows = {
      {"data.files", kMachine, ListField{&c.files},
       "text to train on, or .jsonl files with an example in each line: messages, prompt and "
       "completion, or text"},
      {"data.sequence_length", kNumbers, IntegerField{&c.sequence_length, 1, kPositionsMax},
       "tokens of a sequence"},
      {"data.batch_size", kNumbers, IntegerField{&c.batch_size, 1, 1 << 20},
       "sequences of a micro-batch"},
      {"data.accumulation", kNumbers, IntegerField{&c.accumulation, 1, 1 << 20},
       "micro-batches of a step"},
      {"data.validation_fraction", kNumbers, RealField{&c.validation_fraction, 0.0, 0.999},
       "share of the text, at its end, kept for evaluation"},
      {"data.packing", kNumbers, Choice(c.packing, {"packed", "one_each"}),
       "of examples: packed: several in a sequence, which do not see each other; one_each: padded"},
      {"data.scored_turns", kNumbers, Choice(c.scored_turns, {"all", "last"}),
       "of conversations: which of the assistant's turns are learned"},
      {"data.skip_bad_lines", kNumbers, FlagField{&c.skip_bad_lines},
       "of examples: leaves bad lines out, with a warning, instead of refusing the file"},
      {"data.date", kNumbers, TextField{&c.date},
       "YYYY-MM-DD, the day that chat templates see in training"},
      {"data.seed", kNumbers, SeedField{&c.seed}, "decides which sequences are drawn"},
  };
  fields.insert(fields.end(), rows.begin(), rows.end());
}

void AddOptimizer(OptimizerConfig& c, LearningRateSchedule& s, Fields& fields) {
  const auto beta = [&c](std::optional<double>& value, double (*implied)(const OptimizerConfig&)) {
    return DefaultedRealField{.value = &value,
                              .implied = [&c, implied] { return implied(c); },
                              .least = 0.0,
                              .most = 0.999999};
  };
  const Fields rows = {
      {"optimizer.kind", kNumbers, Choice(c.kind, {"adamw", "adam", "sgd", "lion", "adafactor"}),
       "what makes a step of a gradient; adamw and adam keep two moments, lion and sgd one, "
       "adafactor factors by row and column"},
      // SettingsOf says what of it decides the numbers.
      {"optimizer.state_format", kMachine,
       Choice(c.state_format, {"f32", "split_master", "eight_bit"}),
       "split_master: the same numbers in 2 bytes less per bf16 parameter (adamw, adam); "
       "eight_bit: moments in 8 bits, other numbers (all but adafactor)"},
      {"optimizer.beta1", kNumbers, beta(c.beta1, Beta1Of),
       "decay of the first moment; of sgd, its momentum; not adafactor's"},
      {"optimizer.beta2", kNumbers, beta(c.beta2, Beta2Of),
       "decay of the second moment, and of lion's only one; if not set 0.95, lion 0.99; not sgd's "
       "nor adafactor's, which is step^-0.8"},
      {"optimizer.epsilon", kNumbers, RealField{&c.epsilon, kTiny, 1.0},
       "added to the root of the second moment of adamw and adam; of adafactor, the least root of "
       "a second moment and the least mean of row factors"},
      {"optimizer.weight_decay", kNumbers, RealField{&c.weight_decay, 0.0, 100.0},
       "of matrices; norms have none; part of the gradient with adam and sgd"},
      {"optimizer.max_gradient_norm", kNumbers, RealField{&c.max_gradient_norm, 0.0, kLargest},
       "clips the global gradient norm; 0 does not"},
      {"optimizer.groups", kNumbers, GroupListField{&c.groups},
       "parameters with a learning rate factor or weight decay of their own; the first whose match "
       "fits a name counts, and * stands for anything, as in {match: \"*.bias\", weight_decay: 0}"},
      {"optimizer.initial_loss_scale", kNumbers, RealField{&c.loss_scale.initial, kTiny, 0x1p24},
       "of train.dtype=f16: what the loss is multiplied by at first; halved by each step whose "
       "gradient overflows, which is skipped"},
      {"optimizer.loss_scale_steps", kNumbers,
       IntegerField{&c.loss_scale.growth_steps, 1, kManySteps},
       "likewise: steps without overflow after which it is doubled"},
      {"schedule.shape", kNumbers, Choice(s.shape, {"constant", "linear", "cosine", "wsd"}),
       "decay of the learning rate after the warm-up; wsd: at the peak until the last part, see "
       "decay_fraction"},
      {"schedule.peak", kNumbers, RealField{&s.peak, kTiny, 1000.0}, "learning rate at its peak"},
      {"schedule.final_fraction", kNumbers, RealField{&s.final_fraction, 0.0, 1.0},
       "of the peak, at the end of the decay"},
      {"schedule.warmup_steps", kNumbers, IntegerField{&s.warmup_steps, 0, kManySteps},
       "steps of linear warm-up"},
      {"schedule.total_steps", kNumbers, IntegerField{&s.total_steps, 0, kManySteps},
       "where the decay ends; 0: at train.steps"},
      {"schedule.decay_fraction", kNumbers, RealField{&s.decay_fraction, kTiny, 1.0},
       "of wsd: the share of total_steps in which it decays"},
      {"schedule.decay_shape", kNumbers, Choice(s.decay_shape, {"linear", "cosine", "sqrt"}),
       "of wsd: how; sqrt is 1 - sqrt(progress)"},
  };
  fields.insert(fields.end(), rows.begin(), rows.end());
}

void AddMemory(MemoryConfig& c, Fields& fields) {
  const auto fraction = [](double& value) { return RealField{&value, 0.0, 1.0}; };
  const Fields rows = {
      {"memory.device", kMachine, Choice(c.device, {"unified", "emulated"}),
       "unified: device and host are one memory; emulated: a device of its own on the CPU"},
      {"memory.device_memory", kMachine, SizeField{&c.device_memory, 1_B},
       "budget of parameters, gradients and activations on the device"},
      {"memory.host_memory", kMachine, SizeField{&c.host_memory, 0_B},
       "budget on the host; not used when unified"},
      {"memory.spill_dirs", kMachine, ListField{&c.spill_dirs},
       "folders on fast disks for what fits neither; none: no files"},
      {"memory.spill_shares", kMachine, RealListField{&c.spill_shares, kTiny, 1e9},
       "relative speed of each of spill_dirs, which gets as much of every block; none: measured"},
      {"memory.io", kMachine, Choice(c.io, {"auto", "io_uring", "threads"}),
       "how files are read and written"},
      {"memory.verify", kMachine, Choice(c.verification, {"every_read", "off"}),
       "checksums of blocks in files: compared at every read, or not kept"},
      {"memory.update_order", kMachine, Choice(c.update_order, {"exact", "speculative"}),
       "speculative: states in files are updated before the gradient norm is known, and once more "
       "if it then clips; the same numbers, twice the file space for states; not with adafactor"},
      {"memory.policy", kMachine, NameField{&c.policy, Policies()}, "what lies where"},
      {"memory.look_ahead", kMachine, IntegerField{&c.look_ahead, 0, 1 << 20},
       "operators whose parameters are fetched ahead; 0: on demand"},
      {"memory.chunk_elements", kMachine, IntegerField{&c.chunk_elements, 0, int64_t{1} << 40},
       "elements of a chunk; 0: chosen from the model and the budgets"},
      {"memory.offload_parameters", kMachine, fraction(c.static_fractions.offload_parameters),
       "static policy: share of parameters whose home is not the device"},
      {"memory.offload_optimizer", kMachine, fraction(c.static_fractions.offload_optimizer),
       "static policy: share of optimizer states updated on the host"},
      {"memory.spill_optimizer", kMachine, fraction(c.static_fractions.spill_optimizer),
       "static policy: share of those that is kept in files"},
      {"memory.lane_bandwidth", kMachine, SizeField{&c.lane_bandwidth, 0_B},
       "bytes per second between an emulated device and the host; 0: as fast as memory"},
      {"memory.lane_latency_ns", kMachine, IntegerField{&c.lane_latency, 0, 1'000'000'000},
       "nanoseconds that each such copy takes at least"},
      {"memory.trace", kMachine, TextField{&c.trace},
       "file that gets what a training step needs and how long it computes, for `gantry plan`; "
       "empty: none"},
      {"memory.trace_names", kMachine, Choice(c.trace_names, {"keep", "drop"}),
       "of the operators, in that file; drop: it tells nothing that its author chose"},
  };
  fields.insert(fields.end(), rows.begin(), rows.end());
}

void AddTrain(TrainConfig& c, DecoderConfig& model, Fields& fields) {
  const Fields rows = {
      {"train.steps", kMachine, IntegerField{&c.steps, 1, kManySteps}, "steps in all"},
      {"train.accumulation_order", kMachine,
       Choice(c.accumulation_order, {"auto", "micro_batch", "layer"}),
       "layer: each layer serves all micro-batches of a step before the next layer, so parameters "
       "move less and more activations are kept; the same numbers; not with tie_embeddings"},
      {"train.dtype", kNumbers, Choice(model.parameter_dtype, {"f32", "bf16", "f16"}),
       "type of parameters and activations; f16: of parameters and gradients, computed in f32, "
       "with "
       "a loss scale"},
      {"train.threads", kMachine, IntegerField{&c.threads, 0, 1024},
       "threads that compute; 0: one per CPU"},
      {"train.recompute", kMachine, Choice(model.recompute, {"none", "layer", "offload", "auto"}),
       "what layers save for the backward pass: none: it stays on the device; layer: only their "
       "inputs stay, the rest is computed again; offload: it may leave the device in between; "
       "auto: what is best for each layer"},
      {"train.seed", kNumbers, SeedField{&c.seed},
       "decides the initial weights; nothing else in training is random but data.seed's draws"},
      {"train.checkpoint_dir", kMachine, TextField{&c.checkpoint_dir},
       "folder of checkpoints; empty: nothing is saved"},
      {"train.checkpoint_every", kMachine, IntegerField{&c.checkpoint_every, 0, kManySteps},
       "steps between checkpoints; 0: only at the end"},
      {"train.keep", kMachine, IntegerField{&c.keep, 0, 1'000'000}, "checkpoints to keep; 0: all"},
      {"train.keep_best", kMachine, FlagField{&c.keep_best},
       "keeps the checkpoint of the lowest validation loss too, which is saved at once; the file "
       "`best` in the folder names it"},
      {"train.resume", kMachine, TextField{&c.resume},
       "auto: from the newest checkpoint; never; or the path of one"},
      {"train.log_every", kMachine, IntegerField{&c.log_every, 1, kManySteps},
       "steps between lines where there is no progress bar"},
      {"train.eval_every", kMachine, IntegerField{&c.eval_every, 0, kManySteps},
       "steps between evaluations; 0: never"},
      {"train.eval_batches", kMachine, IntegerField{&c.eval_batches, 1, 1'000'000},
       "batches of an evaluation"},
      {"train.early_stop_evaluations", kMachine,
       IntegerField{&c.early_stop_evaluations, 0, 1'000'000},
       "evaluations in a row without improvement after which the run ends; 0: it goes on"},
      {"train.early_stop_improvement", kMachine,
       RealField{&c.early_stop_improvement, 0.0, kLargest},
       "an improvement lowers the validation loss by more than this"},
      {"train.save_model", kMachine, TextField{&c.save_model},
       "new Hugging Face folder that gets the model at the end of a run that began with "
       "model.path; "
       "empty: none"},
      {"train.log_file", kMachine, TextField{&c.log_file},
       "file that gets one JSON object a line per step; empty: none"},
      {"train.tensorboard_dir", kMachine, TextField{&c.tensorboard_dir},
       "folder that gets event files for TensorBoard; empty: none"},
      {"train.trace_file", kMachine, TextField{&c.trace_file},
       "file that gets a timeline of the whole run for ui.perfetto.dev; empty: none"},
      {"train.report", kMachine, TextField{&c.report},
       "file that gets a page about a step, measured beside what its plan said; empty: none"},
      {"train.report_trace", kMachine, TextField{&c.report_trace},
       "file that gets that step for ui.perfetto.dev; empty: none"},
  };
  fields.insert(fields.end(), rows.begin(), rows.end());
}

void AddGenerate(GenerateConfig& c, Fields& fields) {
  const Fields rows = {
      {"generate.checkpoint", kMachine, TextField{&c.checkpoint},
       "a checkpoint, or a folder of them"},
      {"generate.prompt", kMachine, TextField{&c.prompt}, "what the text continues"},
      {"generate.prompts_file", kMachine, TextField{&c.prompts_file},
       "file with a prompt in each line, instead of one prompt; empty: none"},
      {"generate.chat", kMachine, FlagField{&c.chat},
       "a prompt is what a user says, and the model's chat template goes around it"},
      {"generate.batch", kMachine, IntegerField{&c.batch, 1, 1024},
       "prompts that go through the model together"},
      {"generate.tokens", kMachine, IntegerField{&c.tokens, 1, kGeneratedMax},
       "tokens to generate at most"},
      {"generate.stop", kMachine, ListField{&c.stop},
       "texts, each of which ends the text before it"},
      {"generate.temperature", kMachine, RealField{&c.sampling.temperature, 0.0, 1000.0},
       "0: always the most likely"},
      {"generate.top_k", kMachine, IntegerField{&c.sampling.top_k, 0, kDecoderExtentMax},
       "only the k most likely; 0: all"},
      {"generate.top_p", kMachine, RealField{&c.sampling.top_p, kTiny, 1.0},
       "only the most likely that together reach this probability"},
      {"generate.repetition_penalty", kMachine,
       RealField{&c.sampling.repetition_penalty, kTiny, 1000.0},
       "above 1: tokens that are in the text are less likely; 1: as likely"},
      {"generate.seed", kMachine, SeedField{&c.sampling.seed},
       "decides the random choices; of the n-th prompt it is n - 1 more"},
  };
  fields.insert(fields.end(), rows.begin(), rows.end());
}

}  // namespace

std::vector<ConfigField> FieldsOf(RunConfig& config) {
  Fields fields;
  AddModel(config.model, config.model_path, fields);
  AddData(config.data, fields);
  AddOptimizer(config.optimizer, config.schedule, fields);
  AddMemory(config.memory, fields);
  AddTrain(config.train, config.model, fields);
  AddGenerate(config.generate, fields);
  return fields;
}

}  // namespace gantry
