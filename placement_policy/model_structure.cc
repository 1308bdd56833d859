#include "placement_policy/model_structure.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gantry {
namespace {

// Lists tensors and operators, or only counts elements.
class StructureBuilder {
 public:
  enum class Mode { kList, kCount };

  StructureBuilder(const ModelShape& shape, Mode mode)
      : shape_(shape), mode_(mode), is_gpt2_(shape.family == ModelFamily::kGpt2) {}

  void Run() {
    Begin(OperatorKind::kEmbedding);
    Add(is_gpt2_ ? "wte.weight" : "model.embed_tokens.weight", shape_.vocabulary, shape_.width);
    if (shape_.positions > 0) Add("wpe.weight", shape_.positions, shape_.width);
    AddLayers();
    Begin(OperatorKind::kFinalNorm);
    AddNorm(is_gpt2_ ? "ln_f" : "model.norm", shape_.width);
    Begin(OperatorKind::kHead);
    if (!shape_.tied_embeddings) {
      Add("lm_head.weight", shape_.vocabulary, shape_.width);
    } else if (mode_ == Mode::kList) {
      ModelOperator& head = structure_.operators.back();
      head.first_tensor = 0;
      head.tensor_count = 1;
    }
  }

  double elements() const { return elements_; }
  ModelStructure TakeStructure() { return std::move(structure_); }

 private:
  void AddLayers() {
    if (mode_ == Mode::kList) {
      for (int64_t layer = 0; layer < shape_.layers; ++layer) AddLayer(layer);
    } else {
      const int64_t mixtures =
          shape_.mixture.experts > 0 ? shape_.layers - shape_.mixture.dense_layers : 0;
      const std::pair<int64_t, int64_t> kinds[] = {{0, shape_.layers - mixtures},
                                                   {shape_.layers - 1, mixtures}};
      for (const auto& [layer, count] : kinds) {
        repeats_ = static_cast<double>(count);
        if (count > 0) AddLayer(layer);
      }
      repeats_ = 1.0;
    }
    prefix_.clear();
    layer_ = -1;
  }

  void AddLayer(int64_t layer) {
    layer_ = static_cast<int32_t>(layer);
    layer_prefix_ = (is_gpt2_ ? "h." : "model.layers.") + std::to_string(layer) + '.';
    prefix_ = layer_prefix_;
    Begin(OperatorKind::kQueryKeyValue);
    AddNorm(is_gpt2_ ? "ln_1" : "input_layernorm", shape_.width);
    if (shape_.latent.kv_rank > 0) {
      AddLatentQueryKeyValue();
    } else {
      AddQueryKeyValue();
    }
    Begin(OperatorKind::kAttention);
    Begin(OperatorKind::kAttentionOutput);
    AddLinear(is_gpt2_ ? "attn.c_proj" : "self_attn.o_proj",
              {shape_.width, shape_.attended_width()}, shape_.attention_output_bias);
    if (shape_.IsMixture(layer)) {
      AddMixture();
    } else {
      AddMlp();
    }
  }

  void AddQueryKeyValue() {
    const int64_t query = shape_.query_width();
    const int64_t key = shape_.key_width();
    if (is_gpt2_) {
      AddLinear("attn.c_attn", {query + 2 * key, shape_.width}, shape_.query_key_value_bias);
      return;
    }
    AddLinear("self_attn.q_proj", {query, shape_.width}, shape_.query_key_value_bias);
    AddLinear("self_attn.k_proj", {key, shape_.width}, shape_.query_key_value_bias);
    AddLinear("self_attn.v_proj", {key, shape_.width}, shape_.query_key_value_bias);
    if (!shape_.query_key_norm) return;
    AddNorm("self_attn.q_norm", shape_.head_dim);
    AddNorm("self_attn.k_norm", shape_.head_dim);
  }

  void AddLatentQueryKeyValue() {
    const LatentAttentionShape& latent = shape_.latent;
    const int64_t query = shape_.query_width();
    if (latent.query_rank == 0) {
      AddLinear("self_attn.q_proj", {query, shape_.width}, false);
    } else {
      AddLinear("self_attn.q_a_proj", {latent.query_rank, shape_.width},
                shape_.query_key_value_bias);
      AddNorm("self_attn.q_a_layernorm", latent.query_rank);
      AddLinear("self_attn.q_b_proj", {query, latent.query_rank}, false);
    }
    AddLinear("self_attn.kv_a_proj_with_mqa", {latent.kv_rank + latent.rope_dim, shape_.width},
              shape_.query_key_value_bias);
    AddNorm("self_attn.kv_a_layernorm", latent.kv_rank);
    AddLinear("self_attn.kv_b_proj",
              {shape_.heads * (latent.nope_dim + latent.value_dim), latent.kv_rank}, false);
  }

  void AddMlp() {
    Begin(OperatorKind::kMlpUp);
    AddNorm(is_gpt2_ ? "ln_2" : "post_attention_layernorm", shape_.width);
    const Matrix up = {shape_.ffn_width, shape_.width};
    if (is_gpt2_) {
      AddLinear("mlp.c_fc", up, shape_.mlp_bias);
    } else {
      AddLinear("mlp.gate_proj", up, shape_.mlp_bias);
      AddLinear("mlp.up_proj", up, shape_.mlp_bias);
    }
    Begin(OperatorKind::kMlpDown);
    AddLinear(is_gpt2_ ? "mlp.c_proj" : "mlp.down_proj", {shape_.width, shape_.ffn_width},
              shape_.mlp_bias);
  }

  void AddMixture() {
    const MixtureShape& mixture = shape_.mixture;
    const bool is_mixtral = shape_.family == ModelFamily::kMixtral;
    Begin(OperatorKind::kRouter);
    AddNorm("post_attention_layernorm", shape_.width);
    AddLinear(is_mixtral ? "block_sparse_moe.gate" : "mlp.gate", {mixture.experts, shape_.width},
              false);
    if (shape_.family == ModelFamily::kDeepSeekV3) {
      Add("mlp.gate.e_score_correction_bias", 1, mixture.experts);
    }
    Begin(OperatorKind::kExperts);
    const double repeats = repeats_;
    const bool lists = mode_ == Mode::kList;
    if (!lists) repeats_ *= static_cast<double>(mixture.experts);
    for (int64_t expert = 0; expert < (lists ? mixture.experts : 1); ++expert) {
      expert_ = static_cast<int32_t>(expert);
      prefix_ = layer_prefix_ + (is_mixtral ? "block_sparse_moe.experts." : "mlp.experts.") +
                std::to_string(expert) + '.';
      AddExpert(is_mixtral, mixture.expert_width);
    }
    repeats_ = repeats;
    expert_ = -1;
    prefix_ = layer_prefix_;
    if (mixture.shared_experts == 0) return;
    Begin(OperatorKind::kSharedExperts);
    prefix_ = layer_prefix_ + "mlp.shared_experts.";
    AddExpert(false, mixture.shared_experts * mixture.expert_width);
    prefix_ = layer_prefix_;
  }

  void AddExpert(bool is_mixtral, int64_t width) {
    AddLinear(is_mixtral ? "w1" : "gate_proj", {width, shape_.width}, false);
    AddLinear(is_mixtral ? "w3" : "up_proj", {width, shape_.width}, false);
    AddLinear(is_mixtral ? "w2" : "down_proj", {shape_.width, width}, false);
  }

  struct Matrix {
    int64_t rows;
    int64_t cols;
  };
  void AddLinear(std::string_view name, Matrix matrix, bool has_bias) {
    // GPT-2 stores [in, out].
    const Matrix stored = is_gpt2_ ? Matrix{matrix.cols, matrix.rows} : matrix;
    Add(name, ".weight", stored);
    if (has_bias) Add(name, ".bias", {1, matrix.rows});
  }

  void AddNorm(std::string_view name, int64_t width) {
    Add(name, ".weight", {1, width});
    if (is_gpt2_) Add(name, ".bias", {1, width});
  }

  void Add(std::string_view name, int64_t rows, int64_t cols) { Add(name, "", {rows, cols}); }

  void Add(std::string_view name, std::string_view suffix, Matrix matrix) {
    elements_ += repeats_ * static_cast<double>(matrix.rows) * static_cast<double>(matrix.cols);
    if (mode_ == Mode::kCount) return;
    std::string full;
    full.reserve(prefix_.size() + name.size() + suffix.size());
    full.append(prefix_).append(name).append(suffix);
    structure_.tensors.push_back({.name = std::move(full),
                                  .rows = matrix.rows,
                                  .cols = matrix.cols,
                                  .layer = layer_,
                                  .expert = expert_});
    ++structure_.operators.back().tensor_count;
  }

  void Begin(OperatorKind kind) {
    structure_.operators.push_back({.kind = kind,
                                    .layer = layer_,
                                    .first_tensor = static_cast<int64_t>(structure_.tensors.size()),
                                    .tensor_count = 0});
  }

  const ModelShape& shape_;
  Mode mode_;
  bool is_gpt2_;
  std::string layer_prefix_;
  std::string prefix_;
  int32_t layer_ = -1;
  int32_t expert_ = -1;
  double repeats_ = 1.0;   // kCount: tensors that one call stands for
  double elements_ = 0.0;  // exact below 2^53
  ModelStructure structure_;
};

double CountElements(const ModelShape& shape) {
  StructureBuilder builder(shape, StructureBuilder::Mode::kCount);
  builder.Run();
  return builder.elements();
}

}  // namespace

std::string_view Name(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::kEmbedding:
      return "embedding";
    case OperatorKind::kQueryKeyValue:
      return "self_attn.qkv_proj";
    case OperatorKind::kAttention:
      return "self_attn.attention";
    case OperatorKind::kAttentionOutput:
      return "self_attn.o_proj";
    case OperatorKind::kMlpUp:
      return "mlp.gate_up_proj";
    case OperatorKind::kMlpDown:
      return "mlp.down_proj";
    case OperatorKind::kRouter:
      return "mlp.router";
    case OperatorKind::kExperts:
      return "mlp.experts";
    case OperatorKind::kSharedExperts:
      return "mlp.shared_experts";
    case OperatorKind::kFinalNorm:
      return "norm";
    case OperatorKind::kHead:
      return "head";
  }
  GANTRY_CHECK(false) << "operator kind " << static_cast<int>(kind);
  return "";
}

ModelStructure StructureOf(const ModelShape& shape) {
  GANTRY_CHECK_OK(shape.Validate());
  StructureBuilder builder(shape, StructureBuilder::Mode::kList);
  builder.Run();
  return builder.TakeStructure();
}

std::vector<TensorShape> TensorsOf(const ModelShape& shape) { return StructureOf(shape).tensors; }

int64_t ParameterCount(const ModelShape& shape) {
  const double most = static_cast<double>(kModelParametersMax + 1);
  return static_cast<int64_t>(std::min(CountElements(shape), most));
}

}  // namespace gantry
