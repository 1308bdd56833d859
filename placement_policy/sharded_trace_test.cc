// Goal: on each rank the step still has all it needs, in the order in which it can be there, and
// together the ranks have each state and each update once. Method: a small step moment by moment;
// and for the built-in models a replay that knows only which blocks hold something.
#include "placement_policy/sharded_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/machine.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/model_structure.h"
#include "placement_policy/synthetic_trace.h"
#include "placement_policy/trace.h"
#include "placement_policy/training_problem.h"

namespace gantry {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Two chunks of one layer each. Blocks: parameters p0 p1, gradients g0 g1, states s0 s1.
class TwoChunkStep {
 public:
  TwoChunkStep() {
    trace_.block_slots.assign(6, 1);
    trace_.names = {"layer", "update"};
    for (int32_t c = 0; c < 2; ++c) {
      trace_.chunks.push_back({.parameter = c, .gradient = 2 + c, .states = {4 + c, -1, -1}});
    }
  }
  void Pass(int32_t micro_batch) {
    for (int32_t c = 0; c < 2; ++c) {
      Add({.phase = Phase::kForward, .compute = 10, .micro_batch = micro_batch, .layer = c},
          {{c, BlockAccess::kRead}});
    }
    for (int32_t c = 1; c >= 0; --c) {
      Add({.phase = Phase::kBackward, .compute = 20, .micro_batch = micro_batch, .layer = c},
          {{c, BlockAccess::kRead},
           {2 + c, micro_batch == 0 ? BlockAccess::kCreate : BlockAccess::kWrite}});
    }
  }
  void Update() {
    for (int32_t c = 0; c < 2; ++c) {
      Add({.phase = Phase::kOptimizer, .name = 1}, {{2 + c, BlockAccess::kConsume},
                                                    {4 + c, BlockAccess::kWrite},
                                                    {c, BlockAccess::kCreate}});
    }
  }
  Trace& trace() { return trace_; }

 private:
  struct Settings {
    Phase phase;
    int32_t name = 0;
    Nanoseconds compute = 0;
    int32_t micro_batch = 0;
    int32_t layer = -1;
  };
  void Add(const Settings& settings, const std::vector<BlockUse>& uses) {
    trace_.moments.push_back({.phase = settings.phase,
                              .name = settings.name,
                              .first_use = static_cast<int64_t>(trace_.uses.size()),
                              .use_count = static_cast<int64_t>(uses.size()),
                              .compute = settings.compute,
                              .activation_slots = 1,
                              .micro_batch = settings.micro_batch,
                              .layer = settings.layer});
    trace_.uses.insert(trace_.uses.end(), uses.begin(), uses.end());
  }

  Trace trace_;
};

// "layer read p1, write g1" and so on, one per moment.
std::vector<std::string> Described(const Trace& trace) {
  static constexpr const char* kBlocks[] = {"p0", "p1", "g0", "g1", "s0", "s1"};
  static constexpr const char* kAccesses[] = {"read", "write", "create", "consume"};
  std::vector<std::string> lines;
  for (const Moment& moment : trace.moments) {
    std::string line = trace.names[static_cast<size_t>(moment.name)];
    for (const BlockUse& use : trace.uses_of(moment)) {
      line += StrCat(" ", kAccesses[static_cast<size_t>(use.access)], ' ', kBlocks[use.block]);
    }
    lines.push_back(line);
  }
  return lines;
}

TEST(ShardedTraceTest, OneRankHasTheWholeStep) {
  TwoChunkStep step;
  step.Pass(0);
  step.Update();
  for (const Sharding sharding : {Sharding::kStates, Sharding::kGradients, Sharding::kParameters}) {
    const auto trace = ShardTrace(step.trace(), {.sharding = sharding});
    ASSERT_THAT(trace, IsOk());
    EXPECT_EQ(Described(*trace), Described(step.trace()));
    EXPECT_EQ(trace->block_slots, step.trace().block_slots);
  }
}

TEST(ShardedTraceTest, StatesOfOtherRanksAreAbsent) {
  TwoChunkStep step;
  step.Pass(0);
  step.Pass(1);
  step.Update();
  const auto trace = ShardTrace(step.trace(), {.sharding = Sharding::kStates, .ranks = 2});
  ASSERT_THAT(trace, IsOk());
  EXPECT_EQ(Described(*trace),
            (std::vector<std::string>{"layer read p0", "all-gather create p1", "layer read p1",
                                      "layer read p1 create g1", "layer read p0 create g0",  //
                                      "layer read p0", "layer read p1", "layer consume p1 write g1",
                                      "reduce-scatter consume g1", "layer read p0 write g0",
                                      "update consume g0 write s0 create p0"}));
  EXPECT_EQ(trace->block_slots, (std::vector<int8_t>{1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(trace->chunks[1].states[0], -1);
  EXPECT_EQ(trace->chunks[0].states[0], 4);
}

TEST(ShardedTraceTest, GradientsLeaveAfterEachMicroBatch) {
  TwoChunkStep step;
  step.Pass(0);
  step.Pass(1);
  step.Update();
  const auto trace =
      ShardTrace(step.trace(), {.sharding = Sharding::kGradients, .ranks = 2, .rank = 1});
  ASSERT_THAT(trace, IsOk());
  EXPECT_EQ(
      Described(*trace),
      (std::vector<std::string>{
          "all-gather create p0", "layer read p0", "layer read p1", "layer read p1 create g1",
          "layer read p0 create g0", "reduce-scatter consume g0",  //
          "layer read p0", "layer read p1", "layer read p1 write g1", "layer consume p0 create g0",
          "reduce-scatter consume g0", "update consume g1 write s1 create p1"}));
}

TEST(ShardedTraceTest, ParametersLeaveAfterEachPass) {
  TwoChunkStep step;
  step.Pass(0);
  step.Update();
  // Chunk 1's forward and backward pass are neighbours, chunk 0's are not.
  const auto last =
      ShardTrace(step.trace(), {.sharding = Sharding::kParameters, .ranks = 2, .rank = 0});
  ASSERT_THAT(last, IsOk());
  EXPECT_EQ(Described(*last),
            (std::vector<std::string>{"layer read p0", "all-gather create p1", "layer read p1",
                                      "layer consume p1 create g1", "reduce-scatter consume g1",
                                      "layer read p0 create g0",
                                      "update consume g0 write s0 create p0"}));
  const auto first =
      ShardTrace(step.trace(), {.sharding = Sharding::kParameters, .ranks = 2, .rank = 1});
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(Described(*first),
            (std::vector<std::string>{"all-gather create p0", "layer consume p0", "layer read p1",
                                      "layer read p1 create g1", "all-gather create p0",
                                      "layer consume p0 create g0", "reduce-scatter consume g0",
                                      "update consume g1 write s1 create p1"}));
}

TEST(ShardedTraceTest, ActivationsKeepTheirMoments) {
  TwoChunkStep step;
  step.Pass(0);
  step.Update();
  step.trace().activations = {{.created = 0, .used = 3, .slots = 1, .recompute = 7}};
  const auto trace =
      ShardTrace(step.trace(), {.sharding = Sharding::kParameters, .ranks = 2, .rank = 1});
  ASSERT_THAT(trace, IsOk());
  EXPECT_EQ(trace->activations[0].created, 1);
  EXPECT_EQ(trace->activations[0].used, 5);
  EXPECT_EQ(trace->activations[0].recompute, 7);
}

// What blocks hold, from the accesses alone.
class Replay {
 public:
  explicit Replay(const Trace& trace, int64_t ranks, int64_t rank)
      : trace_(trace), holds_(trace.block_slots.size(), false) {
    is_gathered_.resize(trace.block_slots.size(), false);
    for (size_t c = 0; c < trace.chunks.size(); ++c) {
      const bool own = static_cast<int64_t>(c) % ranks == rank;
      SetFor(trace.chunks[c].parameter, own);
      for (const int32_t state : trace.chunks[c].states) SetFor(state, own);
      is_gathered_[static_cast<size_t>(trace.chunks[c].parameter)] = !own;
    }
  }
  void Run() {
    const std::vector<bool> before = holds_;
    for (const Moment& moment : trace_.moments) {
      for (const BlockUse& use : trace_.uses_of(moment)) Apply(use);
    }
    EXPECT_EQ(holds_, before);
  }
  int64_t gathered_max() const { return gathered_max_; }

 private:
  void SetFor(int32_t block, bool holds) {
    if (block >= 0) holds_[static_cast<size_t>(block)] = holds;
  }
  void Apply(const BlockUse& use) {
    const auto block = static_cast<size_t>(use.block);
    const bool held = holds_[block];
    if (use.access == BlockAccess::kCreate) {
      // A parameter may be overwritten by its update.
      EXPECT_TRUE(!holds_[block] || use.block < static_cast<int64_t>(trace_.chunks.size()));
      holds_[block] = true;
    } else {
      EXPECT_TRUE(holds_[block]) << "block " << block;
      holds_[block] = use.access != BlockAccess::kConsume;
    }
    if (!is_gathered_[block]) return;
    gathered_ += static_cast<int64_t>(holds_[block]) - static_cast<int64_t>(held);
    gathered_max_ = std::max(gathered_max_, gathered_);
  }

  const Trace& trace_;
  std::vector<bool> holds_;
  std::vector<bool> is_gathered_;  // parameters of other ranks
  int64_t gathered_ = 0;           // of these, held now
  int64_t gathered_max_ = 0;
};

int64_t ComputeOf(const Trace& trace) {
  int64_t sum = 0;
  for (const Moment& moment : trace.moments) sum += moment.compute;
  return sum;
}

int64_t UpdatesOf(const Trace& trace) {
  return std::ranges::count(trace.moments, Phase::kOptimizer, &Moment::phase);
}

// One more for each state that the trace has.
void CountStates(const Trace& trace, std::vector<int>& counts) {
  counts.resize(trace.block_slots.size(), 0);
  for (const TraceChunk& chunk : trace.chunks) {
    for (const int32_t state : chunk.states) {
      if (state >= 0) ++counts[static_cast<size_t>(state)];
    }
  }
}

void CheckRanks(const ModelShape& shape, SyntheticOptions options, Sharding sharding) {
  constexpr int64_t kRanks = 3;
  const auto whole = SyntheticTrace(shape, options);
  ASSERT_THAT(whole, IsOk());
  std::vector<int> states;
  int64_t updates = 0;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    options.shard = {.sharding = sharding, .ranks = kRanks, .rank = rank};
    const auto trace = SyntheticTrace(shape, options);
    ASSERT_THAT(trace, IsOk());
    ASSERT_THAT(trace->Validate(), IsOk());
    EXPECT_EQ(ComputeOf(*trace), ComputeOf(*whole));
    CountStates(*trace, states);
    updates += UpdatesOf(*trace);
    Replay replay(*trace, kRanks, rank);
    replay.Run();
    if (sharding != Sharding::kParameters) continue;
    // Two thirds of the table, or of two neighbouring layers; and borders.
    const int64_t table = shape.vocabulary * shape.width;
    const int64_t layer = (ParameterCount(shape) - table) / shape.layers;
    const int64_t chunk_elements = trace->slot_bytes.count() / 2;
    EXPECT_LE(replay.gathered_max(), std::max(table, 2 * layer) / chunk_elements * 2 / 3 + 3);
  }
  std::vector<int> expected;
  CountStates(*whole, expected);
  EXPECT_EQ(states, expected);
  EXPECT_EQ(updates, UpdatesOf(*whole));
}

TEST(ShardedTraceTest, RanksDivideEveryModel) {
  for (const std::string_view name :
       {"gpt2", "llama2-7b", "llama3-70b", "mixtral-8x7b", "deepseek-v3"}) {
    const auto shape = BuiltInModel(name);
    ASSERT_THAT(shape, IsOk());
    for (const Sharding sharding :
         {Sharding::kStates, Sharding::kGradients, Sharding::kParameters}) {
      SCOPED_TRACE(StrCat(name, " ", sharding));
      SyntheticOptions options = {
          .sequence_length = 1024, .micro_batches = 2, .recomputation = Recomputation::kFull};
      CheckRanks(*shape, options, sharding);
      options.order = MicroBatchOrder::kLayerMajor;
      CheckRanks(*shape, options, sharding);
      options.lora_rank = 8;
      CheckRanks(*shape, options, sharding);
    }
  }
}

TEST(ShardedTraceTest, RefusesBadOptionsByName) {
  TwoChunkStep step;
  step.Pass(0);
  step.Update();
  const Trace& trace = step.trace();
  for (const int64_t ranks : {int64_t{0}, int64_t{-1}, kShardRanksMax + 1}) {
    EXPECT_THAT(ShardTrace(trace, {.ranks = ranks}),
                StatusIs(kInvalid, StrCat("ranks is ", ranks, "; it must be in [1, 65536]")));
  }
  EXPECT_THAT(ShardTrace(trace, {.ranks = kShardRanksMax, .rank = kShardRanksMax - 1}), IsOk());
  EXPECT_THAT(ShardTrace(trace, {.ranks = 2, .rank = 2}),
              StatusIs(kInvalid, "rank is 2; it must be in [0, 1]"));
  EXPECT_THAT(ShardTrace(trace, {.ranks = 2, .rank = -1}), StatusIs(kInvalid, "rank is -1"));
  EXPECT_THAT(ShardTrace(trace, {.sharding = static_cast<Sharding>(3)}),
              StatusIs(kInvalid, "sharding is 3"));
}

TEST(ShardedTraceTest, RefusesStepsThatAreNotOfOneDevice) {
  TwoChunkStep step;
  step.Pass(0);
  step.Update();
  const auto sharded = ShardTrace(step.trace(), {.sharding = Sharding::kParameters, .ranks = 2});
  ASSERT_THAT(sharded, IsOk());
  EXPECT_THAT(ShardTrace(*sharded, {.sharding = Sharding::kParameters, .ranks = 2}),
              StatusIs(kInvalid, "no step of one device"));
  Trace unrelated = step.trace();
  unrelated.chunks.clear();
  EXPECT_THAT(ShardTrace(unrelated, {.ranks = 2}), StatusIs(kInvalid, "are a chunk"));
  Trace invalid = step.trace();
  invalid.moments[0].name = 9;
  EXPECT_THAT(ShardTrace(invalid, {.ranks = 2}), StatusIs(kInvalid, "moments[0].name"));
  EXPECT_THAT(ShardTrace(Trace{}, {.ranks = 2}), IsOk());
}

// Planners must take gradients that leave for what they are, not for updates of this rank.
TEST(ShardedTraceTest, MovementProblemsUpdateOwnChunksOnly) {
  TwoChunkStep step;
  step.Pass(0);
  step.Pass(1);
  step.Update();
  Machine machine = {.slot_bytes = Bytes(1), .device_slots = 10, .host_slots = 10};
  machine.rates.host_to_device = {.bytes_per_second = 1};
  machine.rates.device_to_host = {.bytes_per_second = 1};
  for (const Sharding sharding : {Sharding::kStates, Sharding::kGradients, Sharding::kParameters}) {
    const auto trace = ShardTrace(step.trace(), {.sharding = sharding, .ranks = 2, .rank = 1});
    ASSERT_THAT(trace, IsOk());
    const auto built = BuildProblem(*trace, machine, {.chunks = std::vector<ChunkChoice>(2)});
    ASSERT_THAT(built, IsOk());
    ASSERT_EQ(built->problem.updates.size(), 1);
    EXPECT_EQ(built->problem.updates[0].parameter, built->parameter[1]);
    EXPECT_EQ(built->problem.updates[0].gradient, built->gradient[1]);
    EXPECT_GE(built->gradient[0], 0);  // it is there for a while
  }
}

TEST(ShardedTraceTest, MoreRanksThanChunks) {
  TwoChunkStep step;
  step.Pass(0);
  step.Update();
  const auto trace =
      ShardTrace(step.trace(), {.sharding = Sharding::kParameters, .ranks = 5, .rank = 4});
  ASSERT_THAT(trace, IsOk());
  EXPECT_EQ(UpdatesOf(*trace), 0);
}

}  // namespace
}  // namespace gantry
