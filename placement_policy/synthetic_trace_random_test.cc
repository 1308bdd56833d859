// Random small shapes of every family under random options: whatever is accepted gives valid
// traces, also on one rank of several, and what is refused is refused by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "base/random.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/model_structure.h"
#include "placement_policy/sharded_trace.h"
#include "placement_policy/synthetic_layout.h"
#include "placement_policy/synthetic_trace.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_({.seed = seed, .stream = 0}) {}
  // In [least, most].
  int64_t In(int64_t least, int64_t most) {
    return least + random_.Below(most - least + 1, next_++);
  }
  bool Coin() { return In(0, 1) == 1; }
  // Small numbers are as likely as large ones.
  int64_t Power(int64_t most) { return In(1, int64_t{1} << In(0, most)); }

 private:
  Random random_;
  uint64_t next_ = 0;
};

ModelShape RandomShape(Dice& dice) {
  ModelShape shape = {.family = AllModelFamilies()[static_cast<size_t>(dice.In(0, 6))],
                      .layers = dice.In(1, 12),
                      .width = dice.Power(10),
                      .heads = dice.Power(4),
                      .ffn_width = dice.Power(11),
                      .vocabulary = dice.Power(14),
                      .window = dice.Coin() ? dice.Power(10) : 0,
                      .tied_embeddings = dice.Coin(),
                      .query_key_value_bias = dice.Coin(),
                      .attention_output_bias = dice.Coin(),
                      .mlp_bias = dice.Coin(),
                      .query_key_norm = dice.Coin()};
  shape.head_dim = dice.Power(7);
  shape.kv_heads = dice.Coin() ? 1 : shape.heads;
  if (dice.Coin()) {
    shape.mixture = {.experts = dice.Power(6), .expert_width = dice.Power(9)};
    shape.mixture.experts_per_token = dice.In(1, shape.mixture.experts);
    shape.mixture.shared_experts = dice.In(0, 2);
    shape.mixture.dense_layers = dice.In(0, shape.layers);
  }
  if (dice.Coin()) {
    shape.latent = {.kv_rank = dice.Power(8),
                    .query_rank = dice.Coin() ? dice.Power(8) : 0,
                    .nope_dim = dice.Power(6),
                    .rope_dim = dice.Power(6),
                    .value_dim = dice.Power(6)};
  }
  return shape;
}

SyntheticOptions RandomOptions(Dice& dice) {
  SyntheticOptions options = {
      .chunk_elements = dice.Coin() ? 0 : kSyntheticChunkGranularity * dice.Power(8),
      .sequences = dice.Power(4),
      .sequence_length = dice.Power(12),
      .micro_batches = dice.Power(4),
      .order = dice.Coin() ? MicroBatchOrder::kLayerMajor : MicroBatchOrder::kMicroBatchMajor,
      .recomputation = static_cast<Recomputation>(dice.In(0, 2)),
      .lora_rank = dice.Coin() ? dice.Power(6) : 0,
      .flops_per_second = 1e6 * static_cast<double>(dice.Power(40))};
  options.shard.ranks = dice.Coin() ? dice.Power(5) : 1;
  options.shard.rank = dice.In(0, options.shard.ranks - 1);
  options.shard.sharding = static_cast<Sharding>(dice.In(0, 2));
  return options;
}

// Of the moments that compute.
int64_t MostBlockSlots(const Trace& trace) {
  int64_t most = 0;
  for (const Moment& moment : trace.moments) {
    if (moment.phase == Phase::kOptimizer) continue;
    int64_t slots = 0;
    for (const BlockUse& use : trace.uses_of(moment)) {
      slots += trace.block_slots[static_cast<size_t>(use.block)];
    }
    most = std::max(most, slots);
  }
  return most;
}

int64_t MostActivationSlots(const Trace& trace) {
  return std::ranges::max(trace.moments, {}, &Moment::activation_slots).activation_slots;
}

TEST(SyntheticTraceRandomTest, WhatIsAcceptedIsValid) {
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    const ModelShape shape = RandomShape(dice);
    ASSERT_THAT(shape.Validate(), IsOk());
    int64_t elements = 0;
    for (const TensorShape& tensor : TensorsOf(shape)) elements += tensor.elements();
    ASSERT_EQ(elements, ParameterCount(shape));
    const SyntheticOptions options = RandomOptions(dice);
    const auto trace = SyntheticTrace(shape, options);
    if (!trace.ok()) {
      EXPECT_THAT(trace, StatusIs(absl::StatusCode::kInvalidArgument, "flops_per_second is"));
      continue;
    }
    ++accepted;
    ASSERT_THAT(trace->Validate(), IsOk());
    const int64_t chunk_elements = trace->slot_bytes.count() / 2;
    ASSERT_GE(static_cast<int64_t>(trace->chunks.size()) * chunk_elements, elements);
    const Phase phases[] = {Phase::kForward, Phase::kBackward};
    const SlotNeed need = LargestNeed(*trace, phases);
    const int64_t most = MostBlockSlots(*trace);
    ASSERT_GE(most, 1);
    ASSERT_LE(most, need.slots);
    ASSERT_LE(need.slots, MostActivationSlots(*trace) + most);
    // Parameters and gradients of three chunks; of three of adapters, and three frozen ones.
    ASSERT_LE(most, options.lora_rank > 0 ? 9 : 6);
  }
  // Most cases must be about something.
  EXPECT_GE(accepted, 1500);
}

}  // namespace
}  // namespace gantry
