// A step is recorded in tensors and bytes and compiled for a layout: blocks and accesses, slots
// under activations (against a brute-force count), order of chunks, optimizer moments.
#include "gemini/memory_tracer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr int64_t kChunk = kChunkGranularityElements;
constexpr int64_t kSlot = 2 * kChunk;
using Kind = StateKind;
using enum BlockAccess;

// (kind, chunk, access): a use as a test writes it.
using Use = std::tuple<Kind, int64_t, BlockAccess>;

class MemoryTracerTest : public ::testing::Test {
 protected:
  // Group bf16: "a" in chunk 0, "b" in chunks 0 and 1, "c" in chunk 1; group f32: "d", chunk 2;
  // group frozen: "e", chunk 3.
  explicit MemoryTracerTest(StateFormat format = StateFormat::kF32) {
    const std::vector<TensorSpec> specs = {
        {.name = "a", .shape = {kChunk / 2}, .dtype = DType::kBF16},
        {.name = "b", .shape = {kChunk}, .dtype = DType::kBF16},
        {.name = "c", .shape = {100}, .dtype = DType::kBF16},
        {.name = "d", .shape = {100}, .dtype = DType::kF32},
        {.name = "e",
         .shape = {100},
         .dtype = DType::kBF16,
         .trainability = Trainability::kFrozen}};
    auto layout = ChunkLayout::Create(
        specs, {},
        {.chunk_elements = kChunk, .gradient_dtype = DType::kBF16, .state_format = format});
    GANTRY_CHECK(layout.ok()) << layout.status().ToString();
    layout_ = std::make_unique<ChunkLayout>(*std::move(layout));
    GANTRY_CHECK_EQ(layout_->chunk_count(), 4);
  }

  void Begin(bool training = true) {
    StepOptions options;
    if (training) options.optimizer = OptimizerStep{.learning_rate = 0.1};
    tracer_.Begin(options);
    tracer_.OnMicroBatch();
  }
  void Lease(std::vector<ParameterUse> uses, std::string_view name, Phase phase) {
    tracer_.OnAcquire(uses, name, phase);
    tracer_.OnRelease();
  }
  CompiledStep Compile() { return CompileStep(tracer_.End(), *layout_); }

  std::vector<Use> UsesOf(const CompiledStep& step, size_t moment) const {
    std::vector<Use> uses;
    for (const BlockUse& use : step.trace.uses_of(step.trace.moments[moment])) {
      uses.emplace_back(static_cast<Kind>(use.block / layout_->chunk_count()),
                        use.block % layout_->chunk_count(), use.access);
    }
    return uses;
  }

  const TensorId a_{0}, b_{1}, c_{2}, d_{3}, e_{4};
  MemoryTracer tracer_;
  std::unique_ptr<ChunkLayout> layout_;
};

TEST_F(MemoryTracerTest, LeasesBecomeMomentsOfBlocks) {
  Begin();
  Lease({{a_, ParameterAccess::kRead}, {b_, ParameterAccess::kRead}}, "forward", Phase::kForward);
  Lease({{e_, ParameterAccess::kRead}, {d_, ParameterAccess::kRead}}, "forward", Phase::kForward);
  Lease({{b_, ParameterAccess::kReadAndGradient}}, "backward", Phase::kBackward);
  Lease({{a_, ParameterAccess::kGradient}, {d_, ParameterAccess::kGradient}}, "backward",
        Phase::kBackward);
  const CompiledStep step = Compile();
  ASSERT_TRUE(step.trace.Validate().ok()) << step.trace.Validate();
  ASSERT_EQ(step.signatures.size(), 4);
  ASSERT_EQ(step.trace.moments.size(), 4 + 3);  // three trainable chunks
  // Two tensors of one chunk are one use of its block.
  EXPECT_EQ(UsesOf(step, 0),
            (std::vector<Use>{{Kind::kParameter, 0, kRead}, {Kind::kParameter, 1, kRead}}));
  EXPECT_EQ(UsesOf(step, 1),
            (std::vector<Use>{{Kind::kParameter, 3, kRead}, {Kind::kParameter, 2, kRead}}));
  EXPECT_EQ(UsesOf(step, 2), (std::vector<Use>{{Kind::kParameter, 0, kRead},
                                               {Kind::kGradient, 0, kCreate},
                                               {Kind::kParameter, 1, kRead},
                                               {Kind::kGradient, 1, kCreate}}));
  // The first gradient of a chunk creates its block, whatever the tensor; the next ones add.
  EXPECT_EQ(UsesOf(step, 3),
            (std::vector<Use>{{Kind::kGradient, 0, kWrite}, {Kind::kGradient, 2, kCreate}}));
  EXPECT_EQ(step.trace.names[static_cast<size_t>(step.trace.moments[0].name)], "forward");
  EXPECT_EQ(step.trace.moments[1].name, step.trace.moments[0].name);
  EXPECT_EQ(step.trace.moments[2].phase, Phase::kBackward);
}

TEST_F(MemoryTracerTest, BlockSlotsAreThoseOfTheLayout) {
  Begin();
  const CompiledStep step = Compile();
  ASSERT_EQ(step.trace.block_slots.size(), 4u * kStateKindCount);
  for (size_t block = 0; block < step.trace.block_slots.size(); ++block) {
    const BlockId id{static_cast<Kind>(block / 4), ChunkId(static_cast<int64_t>(block % 4))};
    EXPECT_EQ(step.trace.block_slots[block], layout_->HasBlock(id) ? layout_->slots_of(id) : 0)
        << id;
  }
}

TEST_F(MemoryTracerTest, UpdatesFollowInTheOrderOfTheNextForwardPass) {
  Begin();
  Lease({{d_, ParameterAccess::kRead}}, "first", Phase::kForward);
  Lease({{c_, ParameterAccess::kRead}}, "second", Phase::kForward);
  Lease({{a_, ParameterAccess::kRead}}, "third", Phase::kForward);
  const CompiledStep step = Compile();
  EXPECT_EQ(step.chunk_order, (std::vector<int64_t>{2, 1, 0, 3}));
  EXPECT_EQ(step.update_moment, (std::vector<int64_t>{5, 4, 3, -1}));
  for (size_t moment = 3; moment < 6; ++moment) {
    EXPECT_EQ(step.trace.moments[moment].phase, Phase::kOptimizer);
  }
  // f32 parameters are their own master.
  EXPECT_EQ(UsesOf(step, 3), (std::vector<Use>{{Kind::kGradient, 2, kConsume},
                                               {Kind::kMomentum, 2, kWrite},
                                               {Kind::kVariance, 2, kWrite},
                                               {Kind::kParameter, 2, kWrite}}));
  EXPECT_EQ(UsesOf(step, 4), (std::vector<Use>{{Kind::kGradient, 1, kConsume},
                                               {Kind::kMaster, 1, kWrite},
                                               {Kind::kMomentum, 1, kWrite},
                                               {Kind::kVariance, 1, kWrite},
                                               {Kind::kParameter, 1, kCreate}}));
}

class SplitMasterTracerTest : public MemoryTracerTest {
 protected:
  SplitMasterTracerTest() : MemoryTracerTest(StateFormat::kSplitMaster) {}
};

// A parameter that is a part of its master is not made anew.
TEST_F(SplitMasterTracerTest, UpdatesReadTheParameter) {
  Begin();
  Lease({{a_, ParameterAccess::kRead}}, "only", Phase::kForward);
  const CompiledStep step = Compile();
  EXPECT_EQ(UsesOf(step, 1), (std::vector<Use>{{Kind::kGradient, 0, kConsume},
                                               {Kind::kMaster, 0, kWrite},
                                               {Kind::kMomentum, 0, kWrite},
                                               {Kind::kVariance, 0, kWrite},
                                               {Kind::kParameter, 0, kWrite}}));
  EXPECT_EQ(step.trace.block_slots[2 * 4], 1);  // the master of chunk 0
}

class EightBitTracerTest : public MemoryTracerTest {
 protected:
  EightBitTracerTest() : MemoryTracerTest(StateFormat::kEightBit) {}
};

TEST_F(EightBitTracerTest, UpdatesUseOneBlockOfMoments) {
  Begin();
  Lease({{a_, ParameterAccess::kRead}}, "only", Phase::kForward);
  const CompiledStep step = Compile();
  EXPECT_EQ(UsesOf(step, 1), (std::vector<Use>{{Kind::kGradient, 0, kConsume},
                                               {Kind::kMaster, 0, kWrite},
                                               {Kind::kMomentum, 0, kWrite},
                                               {Kind::kParameter, 0, kCreate}}));
}

TEST_F(MemoryTracerTest, EvaluationsHaveNoUpdates) {
  Begin(false);
  Lease({{a_, ParameterAccess::kRead}}, "read", Phase::kForward);
  const CompiledStep step = Compile();
  EXPECT_EQ(step.trace.moments.size(), 1u);
  EXPECT_EQ(step.update_moment, (std::vector<int64_t>{-1, -1, -1, -1}));
}

TEST_F(MemoryTracerTest, NothingIsRecordedOutsideAStep) {
  EXPECT_FALSE(tracer_.recording());
  Lease({{a_, ParameterAccess::kRead}}, "before", Phase::kForward);
  tracer_.OnAllocate(0, 100);
  Begin(false);
  EXPECT_TRUE(tracer_.recording());
  Lease({{a_, ParameterAccess::kRead}}, "in", Phase::kForward);
  const StepRecord record = tracer_.End();
  EXPECT_FALSE(tracer_.recording());
  EXPECT_EQ(record.names, std::vector<std::string>{"in"});
  EXPECT_EQ(record.micro_batches, 1);
  EXPECT_FALSE(record.optimizer);
  EXPECT_DEATH(tracer_.End(), "recording_");
}

TEST_F(MemoryTracerTest, SignaturesTellLeasesApart) {
  using enum ParameterAccess;
  const std::vector<std::vector<ParameterUse>> leases = {
      {},
      {{a_, kRead}},
      {{a_, kGradient}},
      {{a_, kReadAndGradient}},
      {{b_, kRead}},
      {{a_, kRead}, {b_, kRead}},
      {{b_, kRead}, {a_, kRead}},
      {{a_, kRead}, {b_, kGradient}},
  };
  std::set<uint64_t> signatures;
  for (const auto& uses : leases) {
    for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
      EXPECT_TRUE(signatures.insert(LeaseSignature(uses, phase)).second);
      EXPECT_EQ(LeaseSignature(uses, phase), LeaseSignature(uses, phase));
    }
  }
}

// Memory that was allocated before the step began and is freed in it was never counted.
TEST_F(MemoryTracerTest, FreesOfUnknownMemoryAreNotCounted) {
  Begin(false);
  tracer_.OnAllocate(kSlot / 2, 100);
  tracer_.OnFree(0, 100);            // on the page of the allocation above
  tracer_.OnFree(7 * kSlot, kSlot);  // on a page of its own
  Lease({{a_, ParameterAccess::kRead}}, "read", Phase::kForward);
  tracer_.OnAllocate(7 * kSlot, 100);
  Lease({{a_, ParameterAccess::kRead}}, "read", Phase::kForward);
  const CompiledStep step = Compile();
  EXPECT_EQ(step.trace.moments[0].activation_slots, 2);
  EXPECT_EQ(step.trace.moments[1].activation_slots, 2);
}

// What lives only before the first lease counts for it: it is the first moment of the step.
TEST_F(MemoryTracerTest, MemoryBeforeTheFirstLeaseCounts) {
  Begin(false);
  tracer_.OnAllocate(0, 3 * kSlot);
  tracer_.OnFree(0, 3 * kSlot);
  Lease({{a_, ParameterAccess::kRead}}, "read", Phase::kForward);
  Lease({{a_, ParameterAccess::kRead}}, "read", Phase::kForward);
  const CompiledStep step = Compile();
  EXPECT_EQ(step.trace.moments[0].activation_slots, 3);
  EXPECT_EQ(step.trace.moments[1].activation_slots, 0);
}

TEST_F(MemoryTracerTest, ActivationSlotsAreThoseOfABruteForceCount) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    const Random random({.seed = seed, .stream = 0});
    uint64_t drawn = 0;
    const auto below = [&](int64_t bound) { return random.Below(bound, drawn++); };
    std::map<int64_t, int64_t> alive;  // offset -> bytes
    std::vector<int64_t> most;         // per moment
    const auto count = [&] {
      std::set<int64_t> pages;
      for (const auto& [offset, bytes] : alive) {
        for (int64_t page = offset / kSlot; page * kSlot < offset + bytes; ++page) {
          pages.insert(page);
        }
      }
      return static_cast<int64_t>(pages.size());
    };
    Begin();
    for (int i = 0; i < 200; ++i) {
      if (below(4) == 0 || i == 0) {
        Lease({{a_, ParameterAccess::kRead}}, "read", Phase::kForward);
        most.push_back(count());
      } else if (!alive.empty() && below(2) == 0) {
        auto victim = alive.begin();
        std::advance(victim, below(static_cast<int64_t>(alive.size())));
        tracer_.OnFree(victim->first, victim->second);
        alive.erase(victim);
      } else {
        // Disjoint allocations at multiples of a quarter slot, up to two slots long.
        const int64_t offset = below(80) * kSlot / 4;
        const int64_t bytes = 1 + below(2 * kSlot);
        const auto next = alive.lower_bound(offset);
        const bool free_behind = next == alive.end() || next->first >= offset + bytes;
        const bool free_before =
            next == alive.begin() || std::prev(next)->first + std::prev(next)->second <= offset;
        if (!free_behind || !free_before) continue;
        alive.emplace(offset, bytes);
        tracer_.OnAllocate(offset, bytes);
        most.back() = std::max(most.back(), count());
      }
    }
    const CompiledStep step = Compile();
    ASSERT_EQ(step.signatures.size(), most.size());
    for (size_t i = 0; i < most.size(); ++i) {
      EXPECT_EQ(step.trace.moments[i].activation_slots, most[i]) << "moment " << i;
    }
    // The window behind each moment, updates included.
    for (size_t i = 0; i < step.trace.moments.size(); ++i) {
      int64_t expected = 0;
      for (size_t j = i; j < std::min(step.trace.moments.size(), i + 32); ++j) {
        expected = std::max(expected, step.trace.moments[j].activation_slots);
      }
      EXPECT_EQ(step.activation_after[i], expected) << "moment " << i;
    }
  }
}

}  // namespace
}  // namespace gantry
