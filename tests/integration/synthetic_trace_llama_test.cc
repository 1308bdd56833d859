// A synthetic trace against what the engine records of a real model of the same shape: the same
// chunks and blocks, the same uses of each in the same order, the same updates, and nearly the same
// activations. The model makes a dry step, so nothing is computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"
#include "kernels/matmul.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/synthetic_trace.h"
#include "placement_policy/trace.h"
#include "trainer/models/decoder.h"

namespace gantry {
namespace {

constexpr int64_t kSequences = 4;
constexpr int64_t kLength = 256;
constexpr int64_t kChunkElements = 3 * kChunkGranularityElements;

struct Case {
  std::string name;
  int64_t micro_batches = 1;
  Recompute recompute = Recompute::kNone;
  bool tied = false;
  MicroBatchOrder order = MicroBatchOrder::kMicroBatchMajor;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

ModelShape ShapeOf(const Case& c) {
  return {.layers = 6,
          .width = 256,
          .heads = 8,
          .kv_heads = 2,
          .head_dim = 32,
          .ffn_width = 704,
          .vocabulary = 1000,
          .tied_embeddings = c.tied};
}

// The engine with the model on it, and the trace that it recorded.
struct RecordedStep {
  MonotonicClock clock;
  MemoryLogger logger;
  PosixFileCalls files;
  std::unique_ptr<ThreadTeam> team;
  std::unique_ptr<MatMul> matmul;
  std::unique_ptr<Device> device;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<DecoderModel> model;

  absl::Status Make(const Case& c) {
    GANTRY_ASSIGN_OR_RETURN(team, ThreadTeam::Create({.threads = 1}));
    GANTRY_ASSIGN_OR_RETURN(matmul, MatMul::Create({}));
    GANTRY_ASSIGN_OR_RETURN(
        device, CreateHostDevice({.topology = DeviceTopology::kDiscrete, .clock = &clock}));
    GANTRY_ASSIGN_OR_RETURN(engine, Engine::Create({.device = device.get(),
                                                    .team = team.get(),
                                                    .clock = &clock,
                                                    .logger = &logger,
                                                    .files = &files,
                                                    .device_memory = 256_MiB,
                                                    .host_memory = 256_MiB,
                                                    .chunk_elements = kChunkElements,
                                                    .gradient_dtype = DType::kBF16}));
    const ExecutionContext context{.store = engine.get(),
                                   .kernels = {.team = team.get(), .matmul = matmul.get()},
                                   .compute_dtype = DType::kBF16};
    const ModelShape shape = ShapeOf(c);
    GANTRY_ASSIGN_OR_RETURN(model, DecoderModel::Create(context,
                                                        {.layers = shape.layers,
                                                         .width = shape.width,
                                                         .heads = shape.heads,
                                                         .kv_heads = shape.kv_heads,
                                                         .head_dim = shape.head_dim,
                                                         .ffn_width = shape.ffn_width,
                                                         .vocabulary = shape.vocabulary,
                                                         .max_sequence = kLength,
                                                         .tie_embeddings = shape.tied_embeddings,
                                                         .recompute = c.recompute},
                                                        {}));
    GANTRY_RETURN_IF_ERROR(DryStep(c));
    return engine->Seal();
  }

  absl::Status DryStep(const Case& c) {
    const bool together = c.order == MicroBatchOrder::kLayerMajor;
    const int64_t passes = together ? 1 : c.micro_batches;
    GANTRY_RETURN_IF_ERROR(engine->BeginStep(
        {.micro_batches = passes, .optimizer = OptimizerStep{.learning_rate = 1e-3}}));
    const std::vector<int32_t> tokens(static_cast<size_t>(kSequences * kLength), 7);
    const std::vector<TokenBatch> batches(
        static_cast<size_t>(c.micro_batches / passes),
        {.sequences = kSequences, .length = kLength, .tokens = tokens, .targets = tokens});
    for (int64_t pass = 0; pass < passes; ++pass) {
      GANTRY_RETURN_IF_ERROR(engine->BeginMicroBatch());
      GANTRY_RETURN_IF_ERROR(model->ForwardBackward(batches, 1.0).status());
    }
    return engine->EndStep().status();
  }
};

absl::StatusOr<Trace> Synthetic(const Case& c) {
  return SyntheticTrace(ShapeOf(c),
                        {.chunk_elements = kChunkElements,
                         .sequences = kSequences,
                         .sequence_length = kLength,
                         .micro_batches = c.micro_batches,
                         .order = c.order,
                         .recomputation = c.recompute == Recompute::kLayer ? Recomputation::kNeeded
                                                                           : Recomputation::kNone});
}

// The uses of one block in order: "fr", "bw" and so on. A run of the same is one, because operators
// are divided differently; therefore a gradient's creation counts as writing, too.
std::string UsesOf(const Trace& trace, int32_t block) {
  static constexpr std::string_view kPhases = "fbo";
  static constexpr std::string_view kAccesses = "rwcx";
  std::string uses;
  for (const Moment& moment : trace.moments) {
    for (const BlockUse& use : trace.uses_of(moment)) {
      if (use.block != block) continue;
      const BlockAccess access =
          moment.phase == Phase::kBackward && use.access == BlockAccess::kCreate
              ? BlockAccess::kWrite
              : use.access;
      const std::string one = {kPhases[static_cast<size_t>(moment.phase)],
                               kAccesses[static_cast<size_t>(access)], ' '};
      if (!uses.ends_with(one)) uses += one;
    }
  }
  return uses;
}

// The blocks in the order in which a phase uses them; each once in a row.
std::vector<int32_t> Order(const Trace& trace, Phase phase, int64_t first_block, int64_t count) {
  std::vector<int32_t> order;
  for (const Moment& moment : trace.moments) {
    if (moment.phase != phase) continue;
    for (const BlockUse& use : trace.uses_of(moment)) {
      if (use.block < first_block || use.block >= first_block + count) continue;
      if (std::ranges::find(order, use.block) == order.end()) order.push_back(use.block);
    }
  }
  return order;
}

int64_t MostActivations(const Trace& trace) {
  return std::ranges::max(trace.moments, {}, &Moment::activation_slots).activation_slots;
}

// Activations while the last operator of each layer runs, forward and backward: all that the layer
// saves is alive then.
std::vector<int64_t> ActivationsOf(const Trace& trace, std::string_view name) {
  std::vector<int64_t> slots;
  for (const Moment& moment : trace.moments) {
    if (trace.names[static_cast<size_t>(moment.name)] == name) {
      slots.push_back(moment.activation_slots);
    }
  }
  return slots;
}

void ExpectSimilarActivations(const Trace& synthetic, const Trace& recorded) {
  const std::vector<int64_t> ours = ActivationsOf(synthetic, "mlp.down_proj");
  const std::vector<int64_t> theirs = ActivationsOf(recorded, "mlp.down_proj");
  ASSERT_EQ(ours.size(), theirs.size());
  double largest = 0.0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const auto difference = static_cast<double>(std::abs(ours[i] - theirs[i]));
    largest = std::max(largest, difference / static_cast<double>(theirs[i]));
    // Slots that the arena fills in part, and residual sums that it makes in place or not.
    EXPECT_LE(difference, 4.0 + 0.04 * static_cast<double>(theirs[i])) << i;
  }
  std::printf(
      "most activations: %lld slots, recorded %lld; at the ends of layers at most %.0f %% "
      "apart\n",
      static_cast<long long>(MostActivations(synthetic)),
      static_cast<long long>(MostActivations(recorded)), 100 * largest);
  EXPECT_NEAR(static_cast<double>(MostActivations(synthetic)) /
                  static_cast<double>(MostActivations(recorded)),
              1.0, 0.04);
}

class SyntheticTraceLlamaTest : public ::testing::TestWithParam<Case> {};

TEST_P(SyntheticTraceLlamaTest, IsLikeTheRecordedStep) {
  RecordedStep run;
  const absl::Status made = run.Make(GetParam());
  ASSERT_TRUE(made.ok()) << made;
  const Trace* recorded = run.engine->trace("train");
  ASSERT_NE(recorded, nullptr);
  const absl::StatusOr<Trace> synthetic = Synthetic(GetParam());
  ASSERT_TRUE(synthetic.ok()) << synthetic.status();

  EXPECT_EQ(synthetic->slot_bytes, recorded->slot_bytes);
  EXPECT_EQ(synthetic->block_slots, recorded->block_slots);
  ASSERT_EQ(synthetic->chunks.size(), recorded->chunks.size());
  const auto chunks = static_cast<int64_t>(recorded->chunks.size());
  EXPECT_GT(chunks, 40);
  for (size_t c = 0; c < synthetic->chunks.size(); ++c) {
    EXPECT_EQ(synthetic->chunks[c].parameter, recorded->chunks[c].parameter);
    EXPECT_EQ(synthetic->chunks[c].gradient, recorded->chunks[c].gradient);
    EXPECT_EQ(synthetic->chunks[c].states, recorded->chunks[c].states);
  }
  for (int32_t block = 0; block < 5 * chunks; ++block) {
    EXPECT_EQ(UsesOf(*synthetic, block), UsesOf(*recorded, block)) << "block " << block;
  }
  EXPECT_EQ(Order(*synthetic, Phase::kForward, 0, chunks),
            Order(*recorded, Phase::kForward, 0, chunks));
  EXPECT_EQ(Order(*synthetic, Phase::kOptimizer, 0, 5 * chunks),
            Order(*recorded, Phase::kOptimizer, 0, 5 * chunks));
  ExpectSimilarActivations(*synthetic, *recorded);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, SyntheticTraceLlamaTest,
    ::testing::Values(
        Case{.name = "plain"}, Case{.name = "recompute", .recompute = Recompute::kLayer},
        Case{.name = "micro_batches", .micro_batches = 3},
        Case{.name = "layer_major", .micro_batches = 3, .order = MicroBatchOrder::kLayerMajor},
        Case{.name = "layer_major_recompute",
             .micro_batches = 4,
             .recompute = Recompute::kLayer,
             .order = MicroBatchOrder::kLayerMajor},
        Case{.name = "tied", .tied = true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gantry
