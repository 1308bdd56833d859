// Goal: tensors have the names, extents and order of the checkpoints, operators cover them, and
// shapes outside the limits are refused by name.
#include "placement_policy/model_shape.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/testing/status_matchers.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/model_structure.h"

namespace gantry {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::vector<std::string> Described(const std::vector<TensorShape>& tensors, size_t first,
                                   size_t count) {
  std::vector<std::string> lines;
  for (size_t i = first; i < first + count && i < tensors.size(); ++i) {
    lines.push_back(tensors[i].name + " " + std::to_string(tensors[i].rows) + "x" +
                    std::to_string(tensors[i].cols));
  }
  return lines;
}

ModelShape Model(std::string_view name) {
  const auto shape = BuiltInModel(name);
  EXPECT_THAT(shape, IsOk());
  return shape.ok() ? *shape : ModelShape{};
}

TEST(ModelStructureTest, Gpt2HasTheNamesOfItsCheckpoint) {
  const std::vector<TensorShape> tensors = TensorsOf(Model("gpt2"));
  EXPECT_EQ(tensors.size(), 2 + 12 * 12 + 2);
  EXPECT_EQ(
      Described(tensors, 0, 14),
      (std::vector<std::string>{
          "wte.weight 50257x768", "wpe.weight 1024x768", "h.0.ln_1.weight 1x768",
          "h.0.ln_1.bias 1x768", "h.0.attn.c_attn.weight 768x2304", "h.0.attn.c_attn.bias 1x2304",
          "h.0.attn.c_proj.weight 768x768", "h.0.attn.c_proj.bias 1x768", "h.0.ln_2.weight 1x768",
          "h.0.ln_2.bias 1x768", "h.0.mlp.c_fc.weight 768x3072", "h.0.mlp.c_fc.bias 1x3072",
          "h.0.mlp.c_proj.weight 3072x768", "h.0.mlp.c_proj.bias 1x768"}));
  EXPECT_EQ(tensors.back().name, "ln_f.bias");
}

TEST(ModelStructureTest, LlamaHasTheNamesOfItsCheckpoint) {
  const std::vector<TensorShape> tensors = TensorsOf(Model("llama3-8b"));
  EXPECT_EQ(tensors.size(), 1 + 32 * 9 + 2);
  EXPECT_EQ(Described(tensors, 280, 20),
            (std::vector<std::string>{"model.layers.31.input_layernorm.weight 1x4096",
                                      "model.layers.31.self_attn.q_proj.weight 4096x4096",
                                      "model.layers.31.self_attn.k_proj.weight 1024x4096",
                                      "model.layers.31.self_attn.v_proj.weight 1024x4096",
                                      "model.layers.31.self_attn.o_proj.weight 4096x4096",
                                      "model.layers.31.post_attention_layernorm.weight 1x4096",
                                      "model.layers.31.mlp.gate_proj.weight 14336x4096",
                                      "model.layers.31.mlp.up_proj.weight 14336x4096",
                                      "model.layers.31.mlp.down_proj.weight 4096x14336",
                                      "model.norm.weight 1x4096", "lm_head.weight 128256x4096"}));
}

TEST(ModelStructureTest, Qwen3NormalizesQueriesAndKeys) {
  EXPECT_EQ(Described(TensorsOf(Model("qwen3-8b")), 4, 4),
            (std::vector<std::string>{"model.layers.0.self_attn.v_proj.weight 1024x4096",
                                      "model.layers.0.self_attn.q_norm.weight 1x128",
                                      "model.layers.0.self_attn.k_norm.weight 1x128",
                                      "model.layers.0.self_attn.o_proj.weight 4096x4096"}));
}

TEST(ModelStructureTest, Qwen2HasBiasesOfQueriesKeysAndValues) {
  EXPECT_EQ(Described(TensorsOf(Model("qwen2-7b")), 2, 7),
            (std::vector<std::string>{"model.layers.0.self_attn.q_proj.weight 3584x3584",
                                      "model.layers.0.self_attn.q_proj.bias 1x3584",
                                      "model.layers.0.self_attn.k_proj.weight 512x3584",
                                      "model.layers.0.self_attn.k_proj.bias 1x512",
                                      "model.layers.0.self_attn.v_proj.weight 512x3584",
                                      "model.layers.0.self_attn.v_proj.bias 1x512",
                                      "model.layers.0.self_attn.o_proj.weight 3584x3584"}));
}

TEST(ModelStructureTest, MixtralHasExperts) {
  const std::vector<TensorShape> tensors = TensorsOf(Model("mixtral-8x7b"));
  EXPECT_EQ(tensors.size(), 1 + 32 * (7 + 8 * 3) + 2);
  EXPECT_EQ(
      Described(tensors, 6, 6),
      (std::vector<std::string>{"model.layers.0.post_attention_layernorm.weight 1x4096",
                                "model.layers.0.block_sparse_moe.gate.weight 8x4096",
                                "model.layers.0.block_sparse_moe.experts.0.w1.weight 14336x4096",
                                "model.layers.0.block_sparse_moe.experts.0.w3.weight 14336x4096",
                                "model.layers.0.block_sparse_moe.experts.0.w2.weight 4096x14336",
                                "model.layers.0.block_sparse_moe.experts.1.w1.weight 14336x4096"}));
  EXPECT_EQ(tensors[8].expert, 0);
  EXPECT_EQ(tensors[11].expert, 1);
  EXPECT_EQ(tensors[7].expert, -1);
}

TEST(ModelStructureTest, DeepSeekHasLatentAttentionDenseLayersAndSharedExperts) {
  const std::vector<TensorShape> tensors = TensorsOf(Model("deepseek-v3"));
  EXPECT_EQ(Described(tensors, 1, 13),
            (std::vector<std::string>{"model.layers.0.input_layernorm.weight 1x7168",
                                      "model.layers.0.self_attn.q_a_proj.weight 1536x7168",
                                      "model.layers.0.self_attn.q_a_layernorm.weight 1x1536",
                                      "model.layers.0.self_attn.q_b_proj.weight 24576x1536",
                                      "model.layers.0.self_attn.kv_a_proj_with_mqa.weight 576x7168",
                                      "model.layers.0.self_attn.kv_a_layernorm.weight 1x512",
                                      "model.layers.0.self_attn.kv_b_proj.weight 32768x512",
                                      "model.layers.0.self_attn.o_proj.weight 7168x16384",
                                      "model.layers.0.post_attention_layernorm.weight 1x7168",
                                      "model.layers.0.mlp.gate_proj.weight 18432x7168",
                                      "model.layers.0.mlp.up_proj.weight 18432x7168",
                                      "model.layers.0.mlp.down_proj.weight 7168x18432",
                                      "model.layers.1.input_layernorm.weight 1x7168"}));
  std::vector<std::string> router;
  for (const TensorShape& tensor : tensors) {
    if (tensor.layer == 3 && tensor.expert < 1) router.push_back(tensor.name);
  }
  ASSERT_EQ(router.size(), 8 + 3 + 3 + 3);
  EXPECT_EQ(router[9], "model.layers.3.mlp.gate.weight");
  EXPECT_EQ(router[10], "model.layers.3.mlp.gate.e_score_correction_bias");
  EXPECT_EQ(router[11], "model.layers.3.mlp.experts.0.gate_proj.weight");
  EXPECT_EQ(router.back(), "model.layers.3.mlp.shared_experts.down_proj.weight");
}

TEST(ModelStructureTest, OperatorsCoverTheTensorsInOrder) {
  for (const std::string_view name : BuiltInModelNames()) {
    SCOPED_TRACE(std::string(name));
    const ModelShape shape = Model(name);
    const ModelStructure structure = StructureOf(shape);
    int64_t next = 0;
    int32_t layer = -1;
    std::set<std::string> names;
    for (const TensorShape& tensor : structure.tensors) {
      EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
    }
    for (const ModelOperator& op : structure.operators) {
      if (op.kind == OperatorKind::kHead && shape.tied_embeddings) {
        EXPECT_EQ(op.first_tensor, 0);
        EXPECT_EQ(op.tensor_count, 1);
        continue;
      }
      EXPECT_EQ(op.first_tensor, next) << op.kind;
      EXPECT_EQ(op.tensor_count == 0, op.kind == OperatorKind::kAttention);
      next += op.tensor_count;
      for (int64_t i = op.first_tensor; i < next; ++i) {
        EXPECT_EQ(structure.tensors[static_cast<size_t>(i)].layer, op.layer);
      }
      if (op.kind == OperatorKind::kQueryKeyValue) {
        EXPECT_EQ(op.layer, ++layer);
      }
      if (op.layer < 0) continue;
      const bool is_dense = op.kind == OperatorKind::kMlpUp || op.kind == OperatorKind::kMlpDown;
      const bool is_mixture = op.kind == OperatorKind::kRouter || op.kind == OperatorKind::kExperts;
      EXPECT_FALSE(shape.IsMixture(op.layer) ? is_dense : is_mixture) << op.kind;
    }
    EXPECT_EQ(next, static_cast<int64_t>(structure.tensors.size()));
    EXPECT_EQ(layer + 1, shape.layers);
  }
}

TEST(ModelStructureTest, CountsWithoutListing) {
  // All kinds of layers at once: dense ones before mixtures, latent attention, biases.
  ModelShape shape = Model("deepseek-v3");
  for (const int64_t dense : {0, 1, 60, 61}) {
    shape.mixture.dense_layers = dense;
    int64_t sum = 0;
    for (const TensorShape& tensor : TensorsOf(shape)) sum += tensor.elements();
    EXPECT_EQ(ParameterCount(shape), sum) << dense;
  }
}

TEST(ModelShapeTest, RefusesBadFieldsByName) {
  const struct {
    const char* field;
    std::function<void(ModelShape&)> spoil;
  } cases[] = {
      {"layers is 0", [](ModelShape& s) { s.layers = 0; }},
      {"layers is 4097", [](ModelShape& s) { s.layers = 4097; }},
      {"width is -1", [](ModelShape& s) { s.width = -1; }},
      {"vocabulary is 0", [](ModelShape& s) { s.vocabulary = 0; }},
      {"positions is -1", [](ModelShape& s) { s.positions = -1; }},
      {"window is -1", [](ModelShape& s) { s.window = -1; }},
      {"heads is 0", [](ModelShape& s) { s.heads = 0; }},
      {"kv_heads is 129", [](ModelShape& s) { s.kv_heads = 129; }},
      {"kv_heads is 3", [](ModelShape& s) { s.kv_heads = 3; }},
      {"ffn_width is 0", [](ModelShape& s) { s.ffn_width = 0; }},
      {"family is 7", [](ModelShape& s) { s.family = static_cast<ModelFamily>(7); }},
      {"mixture.experts is -1", [](ModelShape& s) { s.mixture.experts = -1; }},
      {"mixture.experts is 0", [](ModelShape& s) { s.mixture.experts = 0; }},
      {"mixture.experts_per_token is 257",
       [](ModelShape& s) { s.mixture.experts_per_token = 257; }},
      {"mixture.expert_width is 0", [](ModelShape& s) { s.mixture.expert_width = 0; }},
      {"mixture.shared_experts is -1", [](ModelShape& s) { s.mixture.shared_experts = -1; }},
      {"mixture.shared_experts is 16384", [](ModelShape& s) { s.mixture.shared_experts = 16384; }},
      {"mixture.dense_layers is 62", [](ModelShape& s) { s.mixture.dense_layers = 62; }},
      {"mixture.experts_per_token is 256",
       [](ModelShape& s) {
         s.mixture.experts_per_token = 256;
         s.mixture.expert_width = int64_t{1} << 20;
       }},
      {"latent.kv_rank is 0", [](ModelShape& s) { s.latent.kv_rank = 0; }},
      {"latent.query_rank is -1", [](ModelShape& s) { s.latent.query_rank = -1; }},
      {"latent.nope_dim is 0", [](ModelShape& s) { s.latent.nope_dim = 0; }},
      {"latent.rope_dim is 0", [](ModelShape& s) { s.latent.rope_dim = 0; }},
      {"latent.value_dim is 0", [](ModelShape& s) { s.latent.value_dim = 0; }},
      {"head_dim is 0", [](ModelShape& s) { s.latent = {}; }},
  };
  EXPECT_THAT(Model("deepseek-v3").Validate(), IsOk());
  for (const auto& [field, spoil] : cases) {
    ModelShape shape = Model("deepseek-v3");
    spoil(shape);
    EXPECT_THAT(shape.Validate(), StatusIs(kInvalid, std::string("model: ") + field));
  }
}

TEST(ModelShapeTest, FamiliesHaveNames) {
  std::set<std::string_view> names;
  for (const ModelFamily family : AllModelFamilies()) names.insert(Name(family));
  EXPECT_EQ(names.size(), 7);
}

}  // namespace
}  // namespace gantry
