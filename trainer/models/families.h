// The families of decoders: what each is made of and what its parameters are called, one table a
// family that can be read next to its config.json and its files.
//
//   family   positions  norm   activation  biases                    q/k norm  windows
//   gpt2     learned    layer  gelu_tanh   all projections           no        none
//   llama    rotary     RMS    swiglu      attention_bias, mlp_bias  no        none
//   mistral  rotary     RMS    swiglu      none                      no        sliding_window
//   qwen2    rotary     RMS    swiglu      query, key and value      no        by layer, often none
//   qwen3    rotary     RMS    swiglu      attention_bias            yes       by layer, often none
//
// Parameters have their Hugging Face names here and in files. Linear maps are [out, in] in memory;
// GPT-2's files hold them [in, out] (`stored_transposed`), and fuse query, key and value, which
// then are the first, second and last third of the rows in memory.
//
// Pure functions and plain data; thread-safe.
#ifndef GANTRY_TRAINER_MODELS_FAMILIES_H_
#define GANTRY_TRAINER_MODELS_FAMILIES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/models/decoder_config.h"

namespace gantry {

// What a parameter does in the model.
enum class DecoderRole : uint8_t {
  kTokenEmbedding,
  kPositionEmbedding,
  kInputNorm,
  kQueryKeyValue,  // fused; or the next three
  kQuery,
  kKey,
  kValue,
  kQueryNorm,
  kKeyNorm,
  kAttentionOutput,
  kPostAttentionNorm,
  kGate,
  kUp,  // the first projection of the feed-forward part where there is no gate
  kDown,
  kFinalNorm,
  kHead,
};

enum class DecoderPart : uint8_t { kWeight, kBias };

// What initialisation does with a tensor.
enum class Initial : uint8_t {
  kZeros,
  kOnes,
  kNormal,          // standard deviation 0.02
  kResidualNormal,  // the same over sqrt(2 layers): projections into the residual stream
  kUniformFanIn,    // of adapters: within 1 / sqrt(in)
  kRowNorms,        // of adapters: of the weight that is adapted
};

// A parameter, as it is in memory and in files.
struct DecoderTensor {
  std::string name;  // as in files
  DecoderRole role;
  DecoderPart part;
  int64_t layer;               // -1 outside layers
  std::vector<int64_t> shape;  // in memory: [out, in], [vocabulary, width] or [extent]
  bool stored_transposed;      // files hold a matrix as [in, out]
  Initial initial;

  // Of one dimension, norms and biases, which take no weight decay.
  bool is_vector() const { return shape.size() == 1; }
  int64_t elements() const;
};

// Every parameter once, in the order in which a forward pass uses them first. A tied head is not
// among them. REQUIRES: a valid config.
std::vector<DecoderTensor> DecoderTensors(const DecoderConfig& config);

// The name of the head's weight, a tensor of its own or, tied, another name of the embedding.
std::string_view HeadName(DecoderFamily family);
// What some files leave out in front of every name but the head's: "transformer." for gpt2,
// "model." for others.
std::string_view NamePrefix(DecoderFamily family);
// Names within a layer that files may hold beside the parameters and that are no parameters, such
// as GPT-2's "attn.bias", the causal mask.
std::span<const std::string_view> IgnoredLayerNames(DecoderFamily family);

// A family's settings, as in the table above, with everything that config.json must say left at 0.
DecoderConfig FamilyDefaults(DecoderFamily family);

}  // namespace gantry

#endif  // GANTRY_TRAINER_MODELS_FAMILIES_H_
