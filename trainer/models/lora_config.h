// Which linear maps of a decoder get low-rank adapters, and of what kind: LoRA, with
// rank-stabilised scale (rsLoRA) or magnitudes (DoRA). Settings, names and starting values are
// PEFT's. The base is frozen: it has no gradients and no optimizer states.
//
// Adapters' parameters are called as in PEFT's files, but for its prefix "base_model.model.":
//   MODULE.lora_A.weight [rank, in], MODULE.lora_B.weight [out, rank],
//   MODULE.lora_magnitude_vector [out]
//
// Pure functions and plain data; thread-safe.
#ifndef GANTRY_TRAINER_MODELS_LORA_CONFIG_H_
#define GANTRY_TRAINER_MODELS_LORA_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/models/decoder_config.h"
#include "trainer/models/families.h"

namespace gantry {

struct LoraConfig {
  int64_t rank = 8;              // r
  double alpha = 16.0;           // lora_alpha
  double dropout = 0.0;          // lora_dropout, in [0, 1)
  bool rank_stabilized = false;  // use_rslora: the scale is alpha / sqrt(rank), not alpha / rank
  bool magnitudes = false;       // use_dora
  // Modules with adapters: "all-linear", or the last parts of names, as "q_proj" or
  // "mlp.down_proj"; '*' stands for any characters, as in "layers.1*.self_attn.*".
  std::vector<std::string> targets = {};
  uint64_t seed = 0;  // of dropout

  bool operator==(const LoraConfig&) const = default;
  double scale() const;
};

// Errors: kInvalidArgument naming the field: a rank not in [1, 2^20], an alpha that is not finite
// and positive, a rate outside [0, 1), no targets or an empty one.
absl::Status ValidateLoraConfig(const LoraConfig& lora);

// Whether a module, such as "model.layers.3.self_attn.q_proj", has an adapter. REQUIRES: it is a
// linear map within a layer.
bool HasAdapter(const LoraConfig& lora, std::string_view module);

enum class AdapterPart : uint8_t { kA, kB, kMagnitude };

struct AdapterTensor {
  std::string name;
  std::string base;  // the name of the weight it changes
  AdapterPart part;
  std::vector<int64_t> shape;  // in memory and in files

  int64_t elements() const;
};

// The parameters of all adapters, in the order in which a forward pass uses them first. REQUIRES:
// valid configs. Errors: kInvalidArgument for a target that no module has.
absl::StatusOr<std::vector<AdapterTensor>> AdapterTensors(const DecoderConfig& config,
                                                          const LoraConfig& lora);

}  // namespace gantry

#endif  // GANTRY_TRAINER_MODELS_LORA_CONFIG_H_
