#include "trainer/nn/attention.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "trainer/nn/testing/operator_checker.h"
#include "trainer/nn/testing/reference_attention.h"

namespace gantry {
namespace {

// What an attention is besides its shape.
struct Choice {
  bool rotates = true;
  std::vector<int32_t> documents = {};
};

OperatorCase AttentionCase(const AttentionShape& shape, const SelfAttentionOptions& options,
                           const Choice& choice) {
  OperatorCase c;
  c.inputs = {{.shape = {shape.batch * shape.tokens,
                         (shape.query_heads + 2 * shape.kv_heads) * shape.head_dim}}};
  c.run = [options](Tape& tape, std::vector<Var> inputs,
                    const std::vector<Parameter>&) -> absl::StatusOr<std::vector<Var>> {
    Var qkv = std::move(inputs[0]);
    inputs.clear();
    GANTRY_ASSIGN_OR_RETURN(Var y, SelfAttention(tape, std::move(qkv), options));
    return std::vector<Var>{std::move(y)};
  };
  ReferencePositions positions{.frequencies = {}, .documents = choice.documents};
  if (choice.rotates) positions.frequencies = ReferenceFrequencies(100.0, shape.head_dim);
  c.reference = [shape, positions](const std::vector<Values>& values) {
    return ReferenceAttention(values[0], shape, positions);
  };
  return c;
}

void CheckShape(const AttentionShape& shape, const Choice& choice) {
  const std::vector<double> frequencies = RopeFrequencies(100.0, shape.head_dim);
  const RopeTable rope({.positions = shape.tokens, .frequencies = frequencies});
  std::vector<int32_t> positions;
  for (size_t i = 0; i < choice.documents.size(); ++i) {
    const auto end = i + 1 < choice.documents.size()
                         ? choice.documents[i + 1]
                         : static_cast<int32_t>(shape.batch * shape.tokens);
    for (int32_t row = choice.documents[i]; row < end; ++row) {
      positions.push_back(row - choice.documents[i]);
    }
  }
  CheckOperator(AttentionCase(shape,
                              {.shape = shape,
                               .rope = choice.rotates ? &rope : nullptr,
                               .documents = choice.documents,
                               .positions = positions},
                              choice));
}

TEST(SelfAttentionTest, OneHead) {
  CheckShape({.batch = 1, .tokens = 5, .query_heads = 1, .kv_heads = 1, .head_dim = 4}, {});
}

TEST(SelfAttentionTest, GroupedHeadsAndTwoSequences) {
  CheckShape({.batch = 2, .tokens = 7, .query_heads = 4, .kv_heads = 2, .head_dim = 6}, {});
}

TEST(SelfAttentionTest, OneToken) {
  CheckShape({.batch = 3, .tokens = 1, .query_heads = 2, .kv_heads = 1, .head_dim = 2}, {});
}

TEST(SelfAttentionTest, WithoutRotation) {
  CheckShape({.batch = 2, .tokens = 4, .query_heads = 2, .kv_heads = 2, .head_dim = 4},
             {.rotates = false});
}

TEST(SelfAttentionTest, Windows) {
  CheckShape({.batch = 2, .tokens = 7, .query_heads = 4, .kv_heads = 2, .head_dim = 6, .window = 3},
             {});
}

TEST(SelfAttentionTest, SeveralDocumentsASequence) {
  CheckShape({.batch = 2, .tokens = 7, .query_heads = 4, .kv_heads = 2, .head_dim = 6},
             {.documents = {0, 1, 5, 7, 10}});
  CheckShape({.batch = 2, .tokens = 7, .query_heads = 2, .kv_heads = 2, .head_dim = 4, .window = 2},
             {.documents = {0, 4, 7}});
}

}  // namespace
}  // namespace gantry
