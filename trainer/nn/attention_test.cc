#include "trainer/nn/attention.h"

#include <cmath>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "trainer/nn/testing/operator_checker.h"
#include "trainer/nn/testing/reference_attention.h"

namespace gantry {
namespace {

OperatorCase AttentionCase(const AttentionShape& shape, const RopeTable& rope) {
  OperatorCase c;
  c.inputs = {{.shape = {shape.batch * shape.tokens,
                         (shape.query_heads + 2 * shape.kv_heads) * shape.head_dim}}};
  c.run = [shape, &rope](Tape& tape, std::vector<Var> inputs,
                         const std::vector<Parameter>&) -> absl::StatusOr<std::vector<Var>> {
    Var qkv = std::move(inputs[0]);
    inputs.clear();
    GANTRY_ASSIGN_OR_RETURN(Var y,
                            RopeAttention(tape, std::move(qkv), {.shape = shape, .rope = &rope}));
    return std::vector<Var>{std::move(y)};
  };
  c.reference = [shape](const std::vector<Values>& values) {
    return ReferenceRopeAttention(values[0], shape, 100.0);
  };
  return c;
}

void CheckShape(const AttentionShape& shape) {
  const std::vector<double> frequencies = RopeFrequencies(100.0, shape.head_dim);
  const RopeTable rope({.positions = shape.tokens, .frequencies = frequencies});
  CheckOperator(AttentionCase(shape, rope));
}

TEST(RopeAttentionTest, OneHead) {
  CheckShape({.batch = 1, .tokens = 5, .query_heads = 1, .kv_heads = 1, .head_dim = 4});
}

TEST(RopeAttentionTest, GroupedHeadsAndTwoSequences) {
  CheckShape({.batch = 2, .tokens = 7, .query_heads = 4, .kv_heads = 2, .head_dim = 6});
}

TEST(RopeAttentionTest, OneToken) {
  CheckShape({.batch = 3, .tokens = 1, .query_heads = 2, .kv_heads = 1, .head_dim = 2});
}

}  // namespace
}  // namespace gantry
