// Goal: the costs of single operators against formulae written out here with a model's figures.
#include "placement_policy/operator_cost.h"

#include <gtest/gtest.h>

#include <string_view>

#include "base/testing/status_matchers.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/model_structure.h"

namespace gantry {
namespace {

class OperatorCostTest : public ::testing::Test {
 protected:
  void Load(std::string_view name) {
    const auto shape = BuiltInModel(name);
    ASSERT_THAT(shape, IsOk());
    shape_ = *shape;
    structure_ = StructureOf(shape_);
  }
  // Of the first operator of a kind, in layer `layer` when that is not -1.
  OperatorCost Cost(OperatorKind kind, int32_t layer = -1) {
    for (const ModelOperator& op : structure_.operators) {
      if (op.kind == kind && (layer == -1 || op.layer == layer)) {
        return CostOf(shape_, structure_, op, micro_batch_);
      }
    }
    ADD_FAILURE() << "no operator " << kind;
    return {};
  }

  ModelShape shape_;
  ModelStructure structure_;
  MicroBatchShape micro_batch_ = {.sequences = 3, .length = 1000};
};

TEST_F(OperatorCostTest, PairsOfQueriesAndKeys) {
  EXPECT_EQ(AttentionPairs(1, 0), 1.0);
  EXPECT_EQ(AttentionPairs(4, 0), 10.0);
  EXPECT_EQ(AttentionPairs(4, 4), 10.0);
  EXPECT_EQ(AttentionPairs(4, 5), 10.0);
  EXPECT_EQ(AttentionPairs(4, 3), 9.0);  // 1 + 2 + 3 + 3
  EXPECT_EQ(AttentionPairs(4, 1), 4.0);
}

TEST_F(OperatorCostTest, LlamaFlops) {
  Load("llama3-8b");
  const double tokens = 3000;
  const auto expect_matrix = [&](OperatorKind kind, double elements) {
    const OperatorCost cost = Cost(kind);
    EXPECT_EQ(cost.forward_flops, 2 * tokens * elements) << kind;
    EXPECT_EQ(cost.input_gradient_flops, 2 * tokens * elements) << kind;
    EXPECT_EQ(cost.weight_gradient_flops, 2 * tokens * elements) << kind;
    EXPECT_EQ(cost.tensor_rows, tokens) << kind;
  };
  expect_matrix(OperatorKind::kQueryKeyValue, 4096.0 * (4096 + 1024 + 1024));
  expect_matrix(OperatorKind::kAttentionOutput, 4096.0 * 4096);
  expect_matrix(OperatorKind::kMlpUp, 4096.0 * 2 * 14336);
  expect_matrix(OperatorKind::kMlpDown, 4096.0 * 14336);
  expect_matrix(OperatorKind::kFinalNorm, 0);
  EXPECT_EQ(Cost(OperatorKind::kEmbedding).forward_flops, 0);

  const OperatorCost head = Cost(OperatorKind::kHead);
  EXPECT_EQ(head.forward_flops, 2 * tokens * 4096 * 128256);
  EXPECT_EQ(head.input_gradient_flops, 2 * head.forward_flops);  // the logits again
  EXPECT_EQ(head.weight_gradient_flops, head.forward_flops);

  // 32 heads of 128: scores and sums over the lower triangle, 3 sequences of 1000.
  const OperatorCost attention = Cost(OperatorKind::kAttention);
  EXPECT_EQ(attention.forward_flops, 3 * (1000.0 * 1001 / 2) * 2 * 2 * 32 * 128);
  EXPECT_EQ(attention.input_gradient_flops, 2.5 * attention.forward_flops);
  EXPECT_EQ(attention.weight_gradient_flops, 0);
}

TEST_F(OperatorCostTest, AWindowShortensAttention) {
  Load("mistral-7b");
  micro_batch_ = {.sequences = 1, .length = 8192};
  const double pairs = 4096.0 * 4097 / 2 + 4096.0 * 4096;
  EXPECT_EQ(Cost(OperatorKind::kAttention).forward_flops, pairs * 2 * 2 * 4096);
}

TEST_F(OperatorCostTest, ExpertsMeetTheTokensRoutedToThem) {
  Load("mixtral-8x7b");
  const OperatorCost experts = Cost(OperatorKind::kExperts);
  EXPECT_EQ(experts.tensor_rows, 750);  // 3000 x 2 / 8
  EXPECT_EQ(experts.forward_flops, 2 * 3000.0 * 2 * 3 * 4096 * 14336);
  EXPECT_EQ(experts.saved_bytes, 3000 * 2 * 2 * (2 * 4096 + 3 * 14336));
  EXPECT_EQ(experts.stream_bytes, 3000 * 2 * 4096);
  EXPECT_EQ(Cost(OperatorKind::kRouter).forward_flops, 2 * 3000.0 * 8 * 4096);
}

TEST_F(OperatorCostTest, LatentAttention) {
  Load("deepseek-v3");
  EXPECT_EQ(Cost(OperatorKind::kAttention).forward_flops,
            3 * (1000.0 * 1001 / 2) * 2 * 128 * (192 + 128));
  EXPECT_EQ(Cost(OperatorKind::kQueryKeyValue).forward_flops,
            2 * 3000.0 * (7168.0 * 1536 + 1536.0 * 128 * 192 + 7168.0 * 576 + 512.0 * 128 * 256));
  // Norm output, both narrow vectors before and after their norms, queries, keys, values.
  EXPECT_EQ(Cost(OperatorKind::kQueryKeyValue).saved_bytes,
            3000 * (2 * (7168 + 2 * 1536 + 512 + 64 + 512 + 128 * (192 + 192 + 128)) + 3 * 4));
  // The shared expert hands the stream on, not the routed ones before it.
  EXPECT_EQ(Cost(OperatorKind::kExperts).stream_bytes, 0);
  EXPECT_EQ(Cost(OperatorKind::kSharedExperts).stream_bytes, 3000 * 2 * 7168);
  EXPECT_EQ(Cost(OperatorKind::kSharedExperts).forward_flops, 2 * 3000.0 * 3 * 2048 * 7168);
  EXPECT_EQ(Cost(OperatorKind::kMlpDown, 2).forward_flops, 2 * 3000.0 * 18432 * 7168);
}

// Korthikanti et al. 2022 count 34 s b h a layer besides the scores: 2 of them are dropout masks.
TEST_F(OperatorCostTest, Gpt2SavesWhatTheLiteratureCounts) {
  Load("gpt2");
  int64_t bytes = 0;
  for (const ModelOperator& op : structure_.operators) {
    if (op.layer != 0) continue;
    const OperatorCost cost = CostOf(shape_, structure_, op, micro_batch_);
    bytes += cost.saved_bytes + cost.stream_bytes;
  }
  const int64_t statistics = 3000 * (2 * 8 + 12 * 4);  // two norms, twelve heads
  EXPECT_EQ(bytes - statistics, 32 * 3000 * 768);
}

TEST_F(OperatorCostTest, QueryAndKeyNormsKeepTheirInputs) {
  Load("qwen3-8b");
  EXPECT_EQ(Cost(OperatorKind::kQueryKeyValue).saved_bytes,
            3000 * (2 * (4096 + (4096 + 2 * 1024) + (4096 + 1024)) + 4 + 4 * (32 + 8)));
}

TEST_F(OperatorCostTest, ActivationsScaleWithTheirType) {
  Load("llama3-8b");
  const int64_t half = Cost(OperatorKind::kMlpUp).saved_bytes;
  micro_batch_.dtype = DType::kF32;
  EXPECT_EQ(Cost(OperatorKind::kMlpUp).saved_bytes - half, 3000 * 2 * (4096 + 2 * 14336));
}

TEST_F(OperatorCostTest, LogitsAreNeverStoredWhole) {
  Load("llama3-8b");
  const OperatorCost head = Cost(OperatorKind::kHead);
  const int64_t logits = int64_t{3000} * 128256 * 4;
  EXPECT_LT(head.forward_bytes + head.saved_bytes, logits / 100);
  EXPECT_LT(head.backward_bytes, logits / 10);
  // Blocks of 1024 tokens and 2048 words; in the backward pass gradients of all tokens' block, one
  // block of logits, and the float sum of the input's gradient.
  EXPECT_EQ(head.forward_bytes, 3000 * 16 + 4 * 1024 * 2048);
  EXPECT_EQ(head.backward_bytes,
            3000 * 2 * 4096 + 3000 * 2 * 2048 + 4 * 1024 * 2048 + 4 * 3000 * 4096);
  micro_batch_.dtype = DType::kF32;  // logits are their own gradients, and sums are in place
  EXPECT_EQ(Cost(OperatorKind::kHead).backward_bytes, 3000 * 4 * 4096 + 3000 * 4 * 2048);
  micro_batch_ = {.sequences = 1, .length = 1};
  EXPECT_EQ(Cost(OperatorKind::kHead).forward_bytes, 16 + 4 * 2048);
  micro_batch_ = {.sequences = 1, .length = 65536};  // so many tokens take fewer words
  EXPECT_EQ(Cost(OperatorKind::kHead).backward_bytes,
            int64_t{65536} * (2 * 4096 + 2 * 256 + 4 * 4096) + 4 * 1024 * 256);
}

}  // namespace
}  // namespace gantry
