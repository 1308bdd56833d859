#include "placement_policy/published_sizes.h"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/model_shape.h"

namespace gantry {
namespace {

// What sizes of a family differ in.
struct Size {
  std::string_view name;
  int64_t layers;
  int64_t width;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t ffn_width;
  int64_t vocabulary;
  bool tied_embeddings = false;
  int64_t window = 0;
};

ModelShape BuiltIn(std::string_view name) {
  absl::StatusOr<ModelShape> shape = BuiltInModel(name);
  GANTRY_CHECK_OK(shape.status());
  return *shape;
}

std::vector<PublishedSize> Sizes(ModelShape shape, std::initializer_list<Size> sizes) {
  std::vector<PublishedSize> published;
  for (const Size& size : sizes) {
    shape.layers = size.layers;
    shape.width = size.width;
    shape.heads = size.heads;
    shape.kv_heads = size.kv_heads;
    shape.head_dim = size.head_dim;
    shape.ffn_width = size.ffn_width;
    shape.vocabulary = size.vocabulary;
    shape.tied_embeddings = size.tied_embeddings;
    shape.window = size.window;
    published.push_back({std::string(size.name), shape});
  }
  return published;
}

std::vector<PublishedSize> MixtralSizes() {
  ModelShape larger = BuiltIn("mixtral-8x7b");
  larger.layers = 56;
  larger.width = 6144;
  larger.heads = 48;
  larger.mixture.expert_width = 16384;
  return {{"Mixtral 8x7B", BuiltIn("mixtral-8x7b")}, {"Mixtral 8x22B", larger}};
}

}  // namespace

std::vector<PublishedSize> PublishedSizes(ModelFamily family) {
  switch (family) {
    case ModelFamily::kGpt2:
      return Sizes(BuiltIn("gpt2"), {{"GPT-2 124M", 12, 768, 12, 12, 64, 3072, 50257, true},
                                     {"GPT-2 355M", 24, 1024, 16, 16, 64, 4096, 50257, true},
                                     {"GPT-2 774M", 36, 1280, 20, 20, 64, 5120, 50257, true},
                                     {"GPT-2 1.5B", 48, 1600, 25, 25, 64, 6400, 50257, true}});
    case ModelFamily::kLlama:
      return Sizes(BuiltIn("llama3-8b"),
                   {{"Llama-3.2 1B", 16, 2048, 32, 8, 64, 8192, 128256, true},
                    {"Llama-3.2 3B", 28, 3072, 24, 8, 128, 8192, 128256, true},
                    {"Llama-2 7B", 32, 4096, 32, 32, 128, 11008, 32000},
                    {"Llama-3.1 8B", 32, 4096, 32, 8, 128, 14336, 128256},
                    {"Llama-2 13B", 40, 5120, 40, 40, 128, 13824, 32000},
                    {"Llama-3.1 70B", 80, 8192, 64, 8, 128, 28672, 128256},
                    {"Llama-3.1 405B", 126, 16384, 128, 8, 128, 53248, 128256}});
    case ModelFamily::kMistral:
      return Sizes(BuiltIn("mistral-7b"),
                   {{"Mistral 7B", 32, 4096, 32, 8, 128, 14336, 32000, false, 4096},
                    {"Mistral Nemo 12B", 40, 5120, 32, 8, 128, 14336, 131072},
                    {"Mistral Small 24B", 40, 5120, 32, 8, 128, 32768, 131072},
                    {"Mistral Large 123B", 88, 12288, 96, 8, 128, 28672, 32768}});
    case ModelFamily::kMixtral:
      return MixtralSizes();
    case ModelFamily::kQwen2:
      return Sizes(BuiltIn("qwen2-7b"), {{"Qwen2.5 0.5B", 24, 896, 14, 2, 64, 4864, 151936, true},
                                         {"Qwen2.5 1.5B", 28, 1536, 12, 2, 128, 8960, 151936, true},
                                         {"Qwen2.5 3B", 36, 2048, 16, 2, 128, 11008, 151936, true},
                                         {"Qwen2.5 7B", 28, 3584, 28, 4, 128, 18944, 152064},
                                         {"Qwen2.5 14B", 48, 5120, 40, 8, 128, 13824, 152064},
                                         {"Qwen2.5 32B", 64, 5120, 40, 8, 128, 27648, 152064},
                                         {"Qwen2.5 72B", 80, 8192, 64, 8, 128, 29568, 152064}});
    case ModelFamily::kQwen3:
      return Sizes(BuiltIn("qwen3-8b"), {{"Qwen3 0.6B", 28, 1024, 16, 8, 128, 3072, 151936, true},
                                         {"Qwen3 1.7B", 28, 2048, 16, 8, 128, 6144, 151936, true},
                                         {"Qwen3 4B", 36, 2560, 32, 8, 128, 9728, 151936, true},
                                         {"Qwen3 8B", 36, 4096, 32, 8, 128, 12288, 151936},
                                         {"Qwen3 14B", 40, 5120, 40, 8, 128, 17408, 151936},
                                         {"Qwen3 32B", 64, 5120, 64, 8, 128, 25600, 151936}});
    case ModelFamily::kDeepSeekV3:
      return {{"DeepSeek-V3 671B", BuiltIn("deepseek-v3")}};
  }
  GANTRY_CHECK(false) << "model family " << static_cast<int>(family);
  return {};
}

}  // namespace gantry
