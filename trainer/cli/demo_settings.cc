#include "trainer/cli/demo_settings.h"

#include "base/bytes.h"
#include "base/dtype.h"
#include "device/device.h"
#include "trainer/booster/learning_rate.h"
#include "trainer/booster/run_config.h"
#include "trainer/data/byte_corpus.h"
#include "trainer/models/decoder_config.h"

namespace gantry {

DemoSettings DemoSettings::Make(DemoLength length) {
  const bool quick = length == DemoLength::kQuick;
  DemoSettings settings{
      .config = {}, .sample_bytes = quick ? 60 : 200, .steps_per_turn = quick ? 3 : 4};
  RunConfig& config = settings.config;
  // 100.9 million parameters: 16 bytes of training state each are over 1.5 GiB.
  config.model = {.layers = 14,
                  .width = 768,
                  .heads = 12,
                  .kv_heads = 4,
                  .head_dim = 64,
                  .ffn_width = 2432,
                  .vocabulary = kByteVocabulary,
                  .max_sequence = 512,
                  .recompute = Recompute::kLayer,
                  .parameter_dtype = DType::kBF16};
  config.data.sequence_length = 256;
  config.data.batch_size = quick ? 6 : 8;
  config.data.accumulation = 1;
  config.data.validation_fraction = 0.0;
  config.optimizer.max_gradient_norm = 1.0;
  config.schedule = {.shape = ScheduleShape::kCosine,
                     .peak = quick ? 4e-5 : 1e-4,
                     .final_fraction = 0.1,
                     .warmup_steps = quick ? 0 : 6};
  config.memory.device = DeviceTopology::kDiscrete;
  config.memory.device_memory = 128_MiB;
  config.memory.host_memory = 512_MiB;
  config.memory.policy = "planned";
  config.train.steps = quick ? 3 : 22;
  config.train.eval_every = 0;
  config.train.log_every = 1;
  config.generate.sampling = {.temperature = 0.7, .top_k = 20, .top_p = 1.0, .seed = 1};
  return settings;
}

MemoryConfig ResidentMemory(const MemoryConfig& budgeted, Bytes model_state, Bytes activations) {
  MemoryConfig memory = budgeted;
  // Room for the last chunk of each kind, and for gaps between activations.
  memory.device_memory = model_state + activations * 2 + 128_MiB;
  memory.host_memory = 64_MiB;
  memory.spill_dirs.clear();
  memory.spill_shares.clear();
  memory.policy = "device";
  memory.chunk_elements = 0;
  return memory;
}

}  // namespace gantry
