// Goal: synthetic steps have the operations, bytes and order that follow from the model and the
// options, for every model, micro-batch order, recomputation and kind of training.
#include "placement_policy/synthetic_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/model_structure.h"
#include "placement_policy/operator_cost.h"
#include "placement_policy/synthetic_layout.h"

namespace gantry {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

ModelShape Model(std::string_view name) {
  const auto shape = BuiltInModel(name);
  EXPECT_THAT(shape, IsOk());
  return shape.ok() ? *shape : ModelShape{};
}

Trace Make(const ModelShape& shape, const SyntheticOptions& options) {
  absl::StatusOr<Trace> trace = SyntheticTrace(shape, options);
  EXPECT_THAT(trace, IsOk());
  if (!trace.ok()) return {};
  EXPECT_THAT(trace->Validate(), IsOk());
  return *std::move(trace);
}

double Flops(const Trace& trace) {
  double sum = 0.0;
  for (const Moment& moment : trace.moments) sum += static_cast<double>(moment.compute);
  return sum;
}

double AttentionFlops(const ModelShape& shape, const SyntheticOptions& options) {
  return 2.0 * static_cast<double>(options.sequences * options.micro_batches * shape.layers) *
         AttentionPairs(options.sequence_length, shape.window) *
         static_cast<double>(shape.query_width() + shape.attended_width());
}

// Every combination that a model can be trained in.
std::vector<SyntheticOptions> AllModes(const ModelShape& shape) {
  std::vector<SyntheticOptions> modes;
  for (const MicroBatchOrder order :
       {MicroBatchOrder::kMicroBatchMajor, MicroBatchOrder::kLayerMajor}) {
    for (const Recomputation recomputation :
         {Recomputation::kNone, Recomputation::kFull, Recomputation::kNeeded}) {
      for (const int64_t rank : {0, 16}) {
        for (const int64_t micro_batches : {1, 3}) {
          modes.push_back({.sequences = 2,
                           .sequence_length = shape.positions > 0 ? 512 : 2048,
                           .micro_batches = micro_batches,
                           .order = order,
                           .recomputation = recomputation,
                           .lora_rank = rank});
        }
      }
    }
  }
  return modes;
}

std::string Describe(std::string_view name, const SyntheticOptions& options) {
  return StrCat(name, ", order ", static_cast<int>(options.order), ", recomputation ",
                static_cast<int>(options.recomputation), ", rank ", options.lora_rank, ", ",
                options.micro_batches, " micro-batches");
}

class EveryModelAndMode : public ::testing::TestWithParam<std::string_view> {
 protected:
  void ForEach(const std::function<void(const SyntheticOptions&, const Trace&)>& check) {
    const ModelShape shape = Model(GetParam());
    for (const SyntheticOptions& options : AllModes(shape)) {
      SCOPED_TRACE(Describe(GetParam(), options));
      check(options, Make(shape, options));
      if (HasFailure()) return;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(BuiltIn, EveryModelAndMode,
                         ::testing::ValuesIn(BuiltInModelNames().begin(),
                                             BuiltInModelNames().end()),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(EveryModelAndMode, BlocksAreUsedInAnOrderThatMakesSense) {
  ForEach([](const SyntheticOptions& options, const Trace& trace) {
    enum class Content { kNone, kPartial, kGone };
    std::vector<Content> gradient(trace.block_slots.size(), Content::kNone);
    std::vector<int> updates(trace.block_slots.size(), 0);
    std::vector<int> reads(trace.block_slots.size(), 0);
    Phase phase = Phase::kForward;
    for (const Moment& moment : trace.moments) {
      // Each micro-batch's forward pass may follow a backward pass, an update never does.
      EXPECT_FALSE(phase == Phase::kOptimizer && moment.phase != Phase::kOptimizer);
      phase = moment.phase;
      EXPECT_LE(moment.use_count, options.lora_rank > 0 ? 3 + 2 * 3 : 6);
      const bool is_lookup = trace.names[static_cast<size_t>(moment.name)] == "embedding";
      std::vector<int32_t> blocks;
      for (const BlockUse& use : trace.uses_of(moment)) {
        const auto block = static_cast<size_t>(use.block);
        blocks.push_back(use.block);
        const auto chunks = static_cast<int64_t>(trace.chunks.size());
        if (use.block < chunks) {
          if (phase == Phase::kOptimizer) {
            EXPECT_EQ(use.access, BlockAccess::kCreate);
          } else {
            EXPECT_EQ(use.access, BlockAccess::kRead);
            EXPECT_TRUE(!is_lookup || phase == Phase::kForward);
            ++reads[block];
          }
        } else if (use.block < 2 * chunks) {
          const BlockAccess expected = phase == Phase::kOptimizer          ? BlockAccess::kConsume
                                       : gradient[block] == Content::kNone ? BlockAccess::kCreate
                                                                           : BlockAccess::kWrite;
          EXPECT_EQ(use.access, expected);
          EXPECT_NE(gradient[block], Content::kGone);
          EXPECT_NE(phase, Phase::kForward);
          gradient[block] = phase == Phase::kOptimizer ? Content::kGone : Content::kPartial;
        } else {
          EXPECT_EQ(phase, Phase::kOptimizer);
          EXPECT_EQ(use.access, BlockAccess::kWrite);
          ++updates[block];
        }
      }
      std::ranges::sort(blocks);
      EXPECT_EQ(std::ranges::adjacent_find(blocks), blocks.end());
    }
    for (const TraceChunk& chunk : trace.chunks) {
      EXPECT_GE(reads[static_cast<size_t>(chunk.parameter)], 1);
      if (chunk.gradient < 0) continue;
      EXPECT_EQ(gradient[static_cast<size_t>(chunk.gradient)], Content::kGone);
      for (const int32_t state : chunk.states) {
        EXPECT_EQ(updates[static_cast<size_t>(state)], 1);
      }
    }
  });
}

TEST_P(EveryModelAndMode, BytesAreThoseOfTheShape) {
  const ModelShape shape = Model(GetParam());
  const int64_t parameters = ParameterCount(shape);
  ForEach([&](const SyntheticOptions& options, const Trace& trace) {
    const auto chunks = static_cast<int64_t>(trace.chunks.size());
    std::array<int64_t, 5> slots = {};
    for (size_t block = 0; block < trace.block_slots.size(); ++block) {
      slots[block / trace.chunks.size()] += trace.block_slots[block];
    }
    // Padding: the last chunk of a group, and less than 64 elements a tensor.
    const int64_t chunk_elements = trace.slot_bytes.count() / 2;
    EXPECT_EQ(slots[0], chunks);
    if (options.lora_rank == 0) {
      EXPECT_GE(slots[0] * chunk_elements, parameters);
      EXPECT_LT(slots[0] * chunk_elements, parameters + chunk_elements + parameters / 1000);
      EXPECT_EQ(slots,
                (std::array<int64_t, 5>{chunks, chunks, 2 * chunks, 2 * chunks, 2 * chunks}));
    } else {
      const int64_t trained = slots[1];
      EXPECT_EQ(slots,
                (std::array<int64_t, 5>{chunks, trained, 2 * trained, 2 * trained, 2 * trained}));
      EXPECT_GE(trained, 1);
      EXPECT_LT(trained, chunks / 10);
    }
    EXPECT_EQ(trace.tokens, options.sequences * options.sequence_length * options.micro_batches);
  });
}

// At most 0.5 ns are lost per moment.
TEST_P(EveryModelAndMode, OperationsAreThoseOfTheShape) {
  const ModelShape shape = Model(GetParam());
  const ModelStructure structure = StructureOf(shape);
  for (SyntheticOptions options : AllModes(shape)) {
    SCOPED_TRACE(Describe(GetParam(), options));
    // Slower machines would take longer than a trace may.
    options.flops_per_second = 1e12;
    double layers = 0.0;  // products with what is in the layers, per token
    double layers_adapters = 0.0;
    for (const ModelOperator& op : structure.operators) {
      const double rows = op.kind == OperatorKind::kExperts
                              ? static_cast<double>(shape.mixture.experts_per_token) /
                                    static_cast<double>(shape.mixture.experts)
                              : 1.0;
      for (int64_t i = 0; op.layer >= 0 && i < op.tensor_count; ++i) {
        const TensorShape& tensor = structure.tensors[static_cast<size_t>(op.first_tensor + i)];
        if (tensor.rows == 1) continue;
        layers += rows * static_cast<double>(tensor.elements());
        if (op.kind == OperatorKind::kRouter) continue;
        layers_adapters += rows * static_cast<double>(options.lora_rank) *
                           static_cast<double>(tensor.rows + tensor.cols);
      }
    }
    const auto head = static_cast<double>(shape.vocabulary * shape.width);
    const double tokens =
        static_cast<double>(options.sequences * options.sequence_length * options.micro_batches);
    const double attention = AttentionFlops(shape, options);
    const double forward = 2 * tokens * (layers + layers_adapters) + attention;
    const double own = options.lora_rank > 0 ? 0.0 : 1.0;  // gradients of the model's weights
    const double backward = 2 * tokens * (layers * (1 + own) + 2 * layers_adapters) +
                            2.5 * attention + 2 * tokens * head * (2 + own);
    // The products of the plain feed-forward networks that are not made again.
    const auto dense =
        static_cast<double>(shape.mixture.experts > 0 ? shape.mixture.dense_layers : shape.layers);
    const double last = 2 * tokens * dense *
                        static_cast<double>(shape.ffn_width * shape.width +
                                            options.lora_rank * (shape.ffn_width + shape.width));
    const double again = options.recomputation == Recomputation::kNone   ? 0.0
                         : options.recomputation == Recomputation::kFull ? forward
                                                                         : forward - last;
    const Trace trace = Make(shape, options);
    EXPECT_NEAR(Flops(trace) * 1e3, forward + 2 * tokens * head + backward + again,
                1e3 * static_cast<double>(trace.moments.size()));
  }
}

TEST_P(EveryModelAndMode, ActivationsGrowForwardAndShrinkBackward) {
  ForEach([](const SyntheticOptions& options, const Trace& trace) {
    // Saved bytes alive before each moment; each pair of passes begins and ends without any.
    std::vector<int64_t> alive(trace.moments.size() + 1, 0);
    for (const SavedActivation& saved : trace.activations) {
      EXPECT_EQ(trace.moments[static_cast<size_t>(saved.created)].phase, Phase::kForward);
      EXPECT_EQ(trace.moments[static_cast<size_t>(saved.used)].phase, Phase::kBackward);
      EXPECT_EQ(trace.moments[static_cast<size_t>(saved.created)].micro_batch,
                trace.moments[static_cast<size_t>(saved.used)].micro_batch);
      EXPECT_GE(saved.slots, 0);
      EXPECT_GT(saved.recompute + 1, 0);
      ++alive[static_cast<size_t>(saved.created) + 1];
      --alive[static_cast<size_t>(saved.used) + 1];
    }
    std::partial_sum(alive.begin(), alive.end(), alive.begin());
    for (size_t i = 1; i < trace.moments.size(); ++i) {
      const Phase phase = trace.moments[i].phase;
      if (phase == Phase::kForward) {
        EXPECT_GE(alive[i + 1], alive[i]);
      } else {
        EXPECT_LE(alive[i + 1], alive[i]);
      }
      if (phase == Phase::kOptimizer) {
        EXPECT_EQ(trace.moments[i].activation_slots, 0);
      } else {
        EXPECT_GE(trace.moments[i].activation_slots, 1);
      }
    }
    EXPECT_EQ(alive.back(), 0);
    const auto layers =
        static_cast<int64_t>(std::ranges::max(trace.moments, {}, &Moment::layer).layer) + 1;
    const int64_t per_layer = options.recomputation == Recomputation::kNone ? 2 : 1;
    EXPECT_EQ(static_cast<int64_t>(trace.activations.size()),
              options.micro_batches * (layers * per_layer + 1));
  });
}

TEST_P(EveryModelAndMode, MicroBatchesRunInTheirOrder) {
  ForEach([](const SyntheticOptions& options, const Trace& trace) {
    // Layer and micro-batch of each run of moments, forward and backward apart.
    std::vector<std::pair<int32_t, int32_t>> forward;
    std::vector<std::pair<int32_t, int32_t>> backward;
    for (const Moment& moment : trace.moments) {
      if (moment.phase == Phase::kOptimizer || moment.layer < 0) continue;
      auto& runs = moment.phase == Phase::kForward ? forward : backward;
      const std::pair<int32_t, int32_t> run = {moment.layer, moment.micro_batch};
      if (runs.empty() || runs.back() != run) runs.push_back(run);
    }
    std::vector<std::pair<int32_t, int32_t>> expected = forward;
    if (options.order == MicroBatchOrder::kLayerMajor) {
      // The last one first, so that the backward pass has them in their order.
      std::ranges::sort(expected, {},
                        [](const auto& run) { return std::pair(run.first, -run.second); });
    } else {
      std::ranges::sort(expected, {},
                        [](const auto& run) { return std::pair(run.second, run.first); });
    }
    EXPECT_EQ(forward, expected);
    EXPECT_EQ(std::ranges::adjacent_find(expected), expected.end());
    if (options.order == MicroBatchOrder::kLayerMajor) {
      std::ranges::sort(expected, {},
                        [](const auto& run) { return std::pair(-run.first, run.second); });
    } else {
      std::ranges::sort(expected, {},
                        [](const auto& run) { return std::pair(run.second, -run.first); });
    }
    EXPECT_EQ(backward, expected);
  });
}

TEST_P(EveryModelAndMode, EqualArgumentsGiveEqualTraces) {
  ForEach([](const SyntheticOptions& options, const Trace& trace) {
    const Trace again = Make(Model(GetParam()), options);
    EXPECT_EQ(again.block_slots, trace.block_slots);
    EXPECT_EQ(again.names, trace.names);
    const auto text = [](const Trace& of) {
      std::string lines;
      for (const Moment& m : of.moments) {
        lines += std::to_string(static_cast<int>(m.phase)) + ' ' + std::to_string(m.name) + ' ' +
                 std::to_string(m.compute) + ' ' + std::to_string(m.activation_slots) + ' ' +
                 std::to_string(m.micro_batch) + ' ' + std::to_string(m.layer) + ':';
        for (const BlockUse& use : of.uses_of(m)) {
          lines += std::to_string(use.block) + '/' + std::to_string(static_cast<int>(use.access));
        }
      }
      return lines;
    };
    EXPECT_TRUE(text(again) == text(trace));
  });
}

// The usual estimates: 6 operations per parameter and token, 8 with recomputation, 4 when the model
// is frozen, and attention on top. The table of embeddings is not multiplied, but the head's logits
// are computed twice. Tolerance: 1 %, for models in which head and table are small.
TEST(SyntheticTraceTest, OperationsAreCloseToTheUsualEstimates) {
  for (const std::string_view name : {"llama2-7b", "llama3-70b"}) {
    const ModelShape shape = Model(name);
    SyntheticOptions options = {.sequences = 1, .flops_per_second = 1e12};
    const double attention = AttentionFlops(shape, options) / 1e3;
    const double product =
        static_cast<double>(ParameterCount(shape) - shape.vocabulary * shape.width) * 2048 / 1e3;
    EXPECT_NEAR(Flops(Make(shape, options)) / (6 * product + 3.5 * attention), 1.0, 0.01);
    options.recomputation = Recomputation::kFull;
    EXPECT_NEAR(Flops(Make(shape, options)) / (8 * product + 4.5 * attention), 1.0, 0.01);
    options.recomputation = Recomputation::kNone;
    options.lora_rank = 1;
    EXPECT_NEAR(Flops(Make(shape, options)) / (4 * product + 3.5 * attention), 1.0, 0.01);
  }
}

// The published counts of parameters that a token meets: 12.9 and 37 billion.
TEST(SyntheticTraceTest, MixturesComputeWithTheExpertsThatATokenVisits) {
  const struct {
    std::string_view name;
    double active;
  } models[] = {{"mixtral-8x7b", 12.9e9}, {"deepseek-v3", 37e9}};
  for (const auto& [name, active] : models) {
    const ModelShape shape = Model(name);
    const SyntheticOptions options = {.sequences = 1, .flops_per_second = 1e12};
    const double attention = AttentionFlops(shape, options) / 1e3;
    EXPECT_NEAR((Flops(Make(shape, options)) - 3.5 * attention) / (6 * active * 2.048), 1.0, 0.02);
  }
}

TEST(SyntheticTraceTest, EveryExpertIsUsedInEveryPass) {
  const ModelShape shape = Model("mixtral-8x7b");
  const Trace trace = Make(shape, {.micro_batches = 2});
  std::map<int32_t, int> reads;  // of parameter blocks
  for (const Moment& moment : trace.moments) {
    if (trace.names[static_cast<size_t>(moment.name)] != "mlp.experts") continue;
    for (const BlockUse& use : trace.uses_of(moment)) {
      if (use.access == BlockAccess::kRead) ++reads[use.block];
    }
  }
  // Nearly all of the model; at the least once forward and backward for each micro-batch.
  EXPECT_GT(reads.size(), trace.chunks.size() * 9 / 10);
  for (const auto& [block, count] : reads) EXPECT_GE(count, 4) << block;
}

TEST(SyntheticTraceTest, Gpt2KeepsWhatTheLiteratureCounts) {
  const ModelShape shape = Model("gpt2");
  const SyntheticOptions options = {
      .chunk_elements = 32768, .sequences = 4, .sequence_length = 1024};
  const Trace trace = Make(shape, options);
  int64_t most = 0;
  for (const Moment& moment : trace.moments) most = std::max(most, moment.activation_slots);
  const double expected = 12 * 32.0 * 4096 * 768;
  const auto bytes = static_cast<double>(most * trace.slot_bytes.count());
  EXPECT_GT(bytes, expected);
  EXPECT_LT(bytes, expected * 1.08);  // embeddings, statistics, the head's blocks
  // All but the head's part can be taken away while the head runs.
  int64_t saved = 0;
  for (const SavedActivation& activation : trace.activations) saved += activation.slots;
  EXPECT_GT(static_cast<double>(saved * trace.slot_bytes.count()), expected);
}

TEST(SyntheticTraceTest, RecomputingKeepsTheInputsOfTheLayers) {
  const ModelShape shape = Model("llama3-8b");
  const SyntheticOptions options = {.sequences = 4, .recomputation = Recomputation::kFull};
  const Trace trace = Make(shape, options);
  const Trace kept = Make(shape, {.sequences = 4});
  const int64_t stream = int64_t{4} * 2048 * 4096 * 2;
  int64_t saved = 0;
  for (const SavedActivation& activation : trace.activations) saved += activation.slots;
  EXPECT_EQ(saved, 33 * stream / trace.slot_bytes.count());
  const Phase phases[] = {Phase::kForward, Phase::kBackward};
  const SlotNeed need = LargestNeed(trace, phases);
  // The inputs of all layers and the inside of one; an eighth of what is needed otherwise.
  EXPECT_GT(need.activation_slots, 32 * stream / trace.slot_bytes.count());
  EXPECT_LT(need.activation_slots * 8, LargestNeed(kept, phases).activation_slots);
  EXPECT_LE(need.block_slots, 6);
}

// Slots of each moment of two small layers, added up by hand: 2048 tokens of width 256 are a slot
// (1 MiB), queries another, keys and values half a slot each, the feed-forward width two. Each norm
// keeps 1/128 of a slot, attention 1/64. The head's logits, of 1024 tokens at a time, take 3.9
// slots, their gradient as many, the sum of its input's gradient two.
TEST(SyntheticTraceTest, ActivationsMomentByMoment) {
  const ModelShape shape = {.layers = 2,
                            .width = 256,
                            .heads = 2,
                            .kv_heads = 1,
                            .head_dim = 128,
                            .ffn_width = 512,
                            .vocabulary = 1000};
  const auto slots = [&](Recomputation recomputation) {
    const Trace trace = Make(shape, {.chunk_elements = int64_t{1} << 19,
                                     .sequence_length = 2048,
                                     .recomputation = recomputation});
    std::vector<int64_t> result;
    for (const Moment& moment : trace.moments) {
      if (moment.phase != Phase::kOptimizer) result.push_back(moment.activation_slots);
    }
    return result;
  };
  EXPECT_EQ(slots(Recomputation::kNone),
            (std::vector<int64_t>{1,                   // embedding
                                  5,  6,  8,  14, 16,  // qkv, attention, o, gate and up, down
                                  18, 19, 21, 27, 29,  //
                                  29, 33, 39, 31,      // norm and head, there and back
                                  30, 27, 23, 23, 20,  //
                                  17, 14, 10, 10, 7,  1}));
  EXPECT_EQ(slots(Recomputation::kFull),
            (std::vector<int64_t>{1,                   //
                                  5,  5,  4,  10, 6,   //
                                  6,  6,  5,  11, 7,   //
                                  5,  8,  15, 7,       //
                                  7,  8,  10, 16, 18,  // again
                                  18, 15, 11, 11, 8,   //
                                  6,  7,  9,  15, 17,  // again
                                  17, 14, 10, 10, 7,  1}));
  EXPECT_EQ(slots(Recomputation::kNeeded),
            (std::vector<int64_t>{1,                  //
                                  5,  5,  4,  10, 6,  //
                                  6,  6,  5,  11, 7,  //
                                  5,  8,  15, 7,      //
                                  7,  8,  10, 16,     // again, without the last product
                                  18, 15, 11, 11, 8,  //
                                  6,  7,  9,  15,     // again
                                  17, 14, 10, 10, 7, 1}));
}

TEST(SyntheticTraceTest, LayerMajorHoldsAllMicroBatches) {
  const ModelShape shape = Model("llama3-8b");
  SyntheticOptions options = {.micro_batches = 8, .recomputation = Recomputation::kFull};
  const Phase phases[] = {Phase::kForward, Phase::kBackward};
  const int64_t one = LargestNeed(Make(shape, options), phases).activation_slots;
  options.order = MicroBatchOrder::kLayerMajor;
  const Trace trace = Make(shape, options);
  const int64_t stream = int64_t{2048} * 4096 * 2;
  const int64_t all = LargestNeed(trace, phases).activation_slots;
  EXPECT_GT(all, one);
  // 33 inputs of 8 micro-batches, and the gradients of 8 of them while they turn back.
  EXPECT_GE(all, 33 * 8 * stream / trace.slot_bytes.count());
  EXPECT_LE(all, (33 * 8 + 8) * stream / trace.slot_bytes.count() + one);
}

// How often the step comes back to a layer's parameters is how often they are fetched at least,
// where nothing can stay.
TEST(SyntheticTraceTest, LayerMajorComesBackToEachLayerOnce) {
  const ModelShape shape = Model("llama2-7b");
  constexpr int64_t kMicroBatches = 5;
  for (const Recomputation recomputation : {Recomputation::kNone, Recomputation::kFull}) {
    for (const MicroBatchOrder order :
         {MicroBatchOrder::kMicroBatchMajor, MicroBatchOrder::kLayerMajor}) {
      const Trace trace = Make(
          shape, {.micro_batches = kMicroBatches, .order = order, .recomputation = recomputation});
      // Of each chunk in one layer alone: visits, each a run of moments of that layer.
      std::vector<int64_t> visits(trace.chunks.size(), 0);
      std::vector<int64_t> last_visit(trace.chunks.size(), -1);
      std::vector<int32_t> layer_of(trace.chunks.size(), -2);
      int64_t visit = 0;
      for (size_t m = 0; m < trace.moments.size(); ++m) {
        const Moment& moment = trace.moments[m];
        if (moment.phase == Phase::kOptimizer) break;
        if (m > 0 && (moment.layer != trace.moments[m - 1].layer)) ++visit;
        for (const BlockUse& use : trace.uses_of(moment)) {
          const auto c = static_cast<size_t>(use.block);
          if (c >= trace.chunks.size()) continue;
          layer_of[c] = layer_of[c] == -2 || layer_of[c] == moment.layer ? moment.layer : -1;
          if (last_visit[c] != visit) ++visits[c];
          last_visit[c] = visit;
        }
      }
      int64_t inside = 0;
      for (size_t c = 0; c < visits.size(); ++c) {
        if (layer_of[c] < 0) continue;
        ++inside;
        EXPECT_EQ(visits[c], order == MicroBatchOrder::kLayerMajor ? 2 : 2 * kMicroBatches) << c;
      }
      EXPECT_GT(inside, 300);
    }
  }
}

TEST(SyntheticTraceTest, RecomputationTimes) {
  const ModelShape shape = Model("llama3-8b");
  const Trace trace = Make(shape, {.flops_per_second = 1e12});
  Nanoseconds layer = 0;
  Nanoseconds before = 0;
  for (const Moment& moment : trace.moments) {
    if (moment.layer > 5) break;
    (moment.layer == 5 ? layer : before) += moment.compute;
  }
  // The first layer's input, then each layer's inside and its output.
  EXPECT_EQ(trace.activations[0].recompute, 0);  // rows of a table
  EXPECT_EQ(trace.activations[1 + 2 * 5].recompute, layer);
  EXPECT_EQ(trace.activations[2 * 5].recompute, before);
  EXPECT_EQ(trace.activations[2 + 2 * 5].recompute, before + layer);
}

TEST(SyntheticTraceTest, AFrozenModelHasNoWayBackBeforeItsLayers) {
  const Trace trace = Make(Model("llama3-8b"), {.lora_rank = 8});
  for (const Moment& moment : trace.moments) {
    if (trace.names[static_cast<size_t>(moment.name)] == "embedding") {
      EXPECT_EQ(moment.phase, Phase::kForward);
    }
  }
}

TEST(SyntheticTraceTest, TypesDecideTheSlots) {
  const ModelShape shape = Model("llama3-8b");
  const auto slots = [&](const SyntheticOptions& options) {
    const Trace trace = Make(shape, options);
    std::vector<int> result;
    for (size_t kind = 0; kind < 5; ++kind) {
      result.push_back(trace.block_slots[kind * trace.chunks.size()]);
    }
    const BlockUse last = trace.uses.back();
    EXPECT_EQ(last.access,
              options.state_slots[0] == 2 ? BlockAccess::kCreate : BlockAccess::kWrite);
    return result;
  };
  EXPECT_EQ(slots({}), (std::vector<int>{1, 1, 2, 2, 2}));
  EXPECT_EQ(slots({.gradient_dtype = DType::kF32}), (std::vector<int>{1, 2, 2, 2, 2}));
  EXPECT_EQ(slots({.parameter_dtype = DType::kF32,
                   .gradient_dtype = DType::kF32,
                   .state_slots = {0, 2, 2}}),
            (std::vector<int>{2, 2, 0, 2, 2}));
  EXPECT_EQ(slots({.state_slots = {1, 2, 2}}), (std::vector<int>{1, 1, 1, 2, 2}));
  EXPECT_EQ(slots({.state_slots = {2, 1, 0}}), (std::vector<int>{1, 1, 2, 1, 0}));
  EXPECT_EQ(slots({.state_slots = {0, 0, 0}}), (std::vector<int>{1, 1, 0, 0, 0}));
}

TEST(SyntheticTraceTest, ATiedTableIsUsedAtBothEnds) {
  const Trace trace = Make(Model("gpt2"), {.sequence_length = 1024});
  std::vector<int32_t> names;  // of the moments that read the first chunk
  for (const Moment& moment : trace.moments) {
    for (const BlockUse& use : trace.uses_of(moment)) {
      if (use.block == 0 && moment.phase == Phase::kForward) names.push_back(moment.name);
    }
  }
  ASSERT_EQ(names.size(), 2);
  EXPECT_EQ(trace.names[static_cast<size_t>(names[0])], "embedding");
  EXPECT_EQ(trace.names[static_cast<size_t>(names[1])], "head");
}

TEST(SyntheticTraceTest, TheSmallestModelHasAStep) {
  const ModelShape shape = {.layers = 1,
                            .width = 1,
                            .heads = 1,
                            .kv_heads = 1,
                            .head_dim = 1,
                            .ffn_width = 1,
                            .vocabulary = 1};
  const Trace trace = Make(shape, {.sequence_length = 1});
  EXPECT_EQ(trace.chunks.size(), 1);
  EXPECT_EQ(trace.moments.size(), 8 + 8 + 1);
  EXPECT_EQ(trace.tokens, 1);
}

TEST(SyntheticTraceTest, ScalesTimes) {
  const ModelShape shape = Model("llama3-8b");
  Trace trace = Make(shape, {.flops_per_second = 1e12});
  const Trace half = Make(shape, {.flops_per_second = 5e11});
  ScaleCompute(2.0, trace);
  for (size_t i = 0; i < trace.moments.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(trace.moments[i].compute - half.moments[i].compute), 0, 1);
  }
  for (size_t i = 0; i < trace.activations.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(trace.activations[i].recompute - half.activations[i].recompute),
                0, 1000);
  }
}

TEST(SyntheticTraceTest, RefusesAbsurdOptionsByName) {
  const struct {
    std::string message;
    std::function<void(SyntheticOptions&)> spoil;
  } cases[] = {
      {"chunk_elements is -32768", [](auto& o) { o.chunk_elements = -32768; }},
      {"chunk_elements is 1000", [](auto& o) { o.chunk_elements = 1000; }},
      {"sequences is 0", [](auto& o) { o.sequences = 0; }},
      {"sequences is 16777217", [](auto& o) { o.sequences = 16777217; }},
      {"sequences is 8193 of 2048 tokens", [](auto& o) { o.sequences = 8193; }},
      {"sequence_length is 0", [](auto& o) { o.sequence_length = 0; }},
      {"sequence_length is 16777217", [](auto& o) { o.sequence_length = 16777217; }},
      {"micro_batches is 0", [](auto& o) { o.micro_batches = 0; }},
      {"micro_batches is 65537", [](auto& o) { o.micro_batches = 65537; }},
      {"micro_batches is 65536 and chunk_elements", [](auto& o) { o.micro_batches = 65536; }},
      {"state_slots[0] is 3", [](auto& o) { o.state_slots[0] = 3; }},
      {"state_slots[2] is -1", [](auto& o) { o.state_slots[2] = -1; }},
      {"gradient_dtype is f16", [](auto& o) { o.gradient_dtype = DType::kF16; }},
      {"gradient_dtype is bf16", [](auto& o) { o.parameter_dtype = DType::kF32; }},
      {"lora_rank is -1", [](auto& o) { o.lora_rank = -1; }},
      {"lora_rank is 65537", [](auto& o) { o.lora_rank = 65537; }},
      {"flops_per_second is 0", [](auto& o) { o.flops_per_second = 0; }},
      {"flops_per_second is -1", [](auto& o) { o.flops_per_second = -1; }},
      {"flops_per_second is nan", [](auto& o) { o.flops_per_second = std::nan(""); }},
      {"flops_per_second is inf", [](auto& o) { o.flops_per_second = INFINITY; }},
      {"so that a step takes", [](auto& o) { o.flops_per_second = 1e-3; }},
  };
  for (const auto& [message, spoil] : cases) {
    SyntheticOptions options;
    spoil(options);
    EXPECT_THAT(SyntheticTrace(Model("llama3-8b"), options), StatusIs(kInvalid, message));
  }
  EXPECT_THAT(SyntheticTrace(Model("gpt2"), {.sequence_length = 1024}), IsOk());
  EXPECT_THAT(SyntheticTrace(Model("gpt2"), {.sequence_length = 1025}),
              StatusIs(kInvalid, "sequence_length is 1025; it must be in [1, 1024]"));
  EXPECT_THAT(SyntheticTrace(Model("llama3-8b"), {.sequences = 8192}), IsOk());
  EXPECT_THAT(SyntheticTrace(ModelShape{}, {}), StatusIs(kInvalid, "model: layers is 0"));
}

// Printed, not asserted: other work on the machine decides it too.
TEST(SyntheticTraceTest, BuildTimes) {
  for (const std::string_view name : BuiltInModelNames()) {
    const ModelShape shape = Model(name);
    const auto begin = std::chrono::steady_clock::now();
    const Trace trace =
        Make(shape, {.sequence_length = 1024, .recomputation = Recomputation::kFull});
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - begin;
    std::printf("%-13s %5zu chunks %5zu moments: %6.2f ms with validation\n",
                std::string(name).c_str(), trace.chunks.size(), trace.moments.size(),
                elapsed.count());
  }
}

}  // namespace
}  // namespace gantry
