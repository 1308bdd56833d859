// Goal: whatever chunk is served next, each gradient goes through its passes, no pass runs before
// what it needs, and nothing waits for ever; also when steps overlap and when one is skipped.
// Method: random models and random orders against counts of what each tensor has been through.
#include "gemini/factor_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "base/strings.h"
#include "chunk/optimizer_states.h"

namespace gantry {
namespace {

constexpr int64_t kChunk = kChunkGranularityElements;

ChunkLayout MakeLayout(std::vector<TensorSpec> specs, OptimizerKind optimizer) {
  auto layout = ChunkLayout::Create(
      std::move(specs), {},
      {.chunk_elements = kChunk, .gradient_dtype = DType::kBF16, .optimizer = optimizer});
  GANTRY_CHECK_OK(layout.status());
  return *std::move(layout);
}

TensorSpec Tensor(int64_t number, std::vector<int64_t> shape, DType dtype = DType::kBF16) {
  return {.name = StrCat("t", number), .shape = std::move(shape), .dtype = dtype};
}

// A queue that serves chunks in random order. A chunk's step is begun when its last one is done, as
// far as the step that runs allows.
class RandomQueue {
 public:
  RandomQueue(const ChunkLayout& layout, uint64_t seed)
      : layout_(layout), table_(layout), random_({.seed = seed, .stream = 1}) {
    for (int64_t c = 0; c < layout.chunk_count(); ++c) {
      if (layout.SlicesIn(ChunkId(c)).empty()) continue;
      if (layout.HasBlock({StateKind::kGradient, ChunkId(c)})) chunks_.emplace_back(c);
    }
    const auto tensors = static_cast<size_t>(layout.tensor_count());
    observed_.assign(tensors, 0);
    measured_.assign(tensors, 0);
    states_.assign(static_cast<size_t>(layout.chunk_count()), State{});
  }

  // All chunks get a gradient, in random order, between passes over them and what is left.
  void Step() {
    std::vector<ChunkId> order = chunks_;
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[Below(i)]);
    ++step_;
    for (const ChunkId chunk : order) {
      while (state(chunk).stage != Stage::kNone) ASSERT_TRUE(Advance()) << "stuck";
      state(chunk) = {.stage = Stage::kNormed, .step = step_};
      for (size_t n = Below(4); n > 0 && Advance(); --n) {
      }
    }
  }
  // The step's gradients are dropped, after some were observed.
  void SkippedStep() {
    Finish();
    ++step_;
    for (const ChunkId chunk : chunks_) state(chunk) = {.stage = Stage::kNormed, .step = step_};
    measures_ = false;
    for (size_t n = Below(2 * chunks_.size()); n > 0 && Advance(); --n) {
    }
    measures_ = true;
    for (const ChunkId chunk : chunks_) {
      state(chunk).stage = Stage::kNone;
      table_.OnGradientEnded(chunk);
    }
    std::ranges::fill(observed_, 0);
    table_.Restart();
  }
  void Finish() {
    while (std::ranges::any_of(chunks_,
                               [&](ChunkId chunk) { return state(chunk).stage != Stage::kNone; })) {
      ASSERT_TRUE(Advance()) << "stuck";
    }
    table_.Restart();
  }
  int64_t updates() const { return updates_; }
  int64_t chunks() const { return std::ssize(chunks_); }

 private:
  enum class Stage { kNone, kNormed, kObserved, kMeasured };
  struct State {
    Stage stage = Stage::kNone;
    int64_t step = 0;
  };
  State& state(ChunkId chunk) { return states_[static_cast<size_t>(chunk.value())]; }
  size_t Below(size_t bound) {
    return static_cast<size_t>(random_.Below(static_cast<int64_t>(bound), draw_++));
  }

  // Runs one pass that may run, chosen at random. Returns whether there was one.
  bool Advance() {
    std::vector<ChunkId> ready;
    for (const ChunkId chunk : chunks_) {
      const Stage stage = state(chunk).stage;
      if ((stage == Stage::kNormed && table_.MayObserve(chunk)) ||
          (stage == Stage::kObserved && measures_ && table_.MayMeasure(chunk)) ||
          (stage == Stage::kMeasured && table_.MayUpdate(chunk))) {
        ready.push_back(chunk);
      }
    }
    if (ready.empty()) return false;
    Run(ready[Below(ready.size())]);
    return true;
  }

  void Run(ChunkId chunk) {
    State& now = state(chunk);
    for (const TensorSlice& slice : layout_.SlicesIn(chunk)) {
      const auto t = static_cast<size_t>(slice.tensor.value());
      const int64_t elements = layout_.placement(slice.tensor).elements;
      if (now.stage == Stage::kNormed) {
        EXPECT_EQ(observed_[t], slice.tensor_begin) << "out of turn";
        observed_[t] = (observed_[t] + slice.elements) % elements;
        if (observed_[t] == 0) measured_[t] = 0;
      } else if (now.stage == Stage::kObserved) {
        EXPECT_EQ(observed_[t], 0) << "measured before its tensor was observed";
        measured_[t] += slice.elements;
      } else {
        EXPECT_EQ(measured_[t], elements) << "updated before its tensor was measured";
      }
    }
    switch (now.stage) {
      case Stage::kNormed:
        table_.OnObserved(chunk);
        now.stage = Stage::kObserved;
        break;
      case Stage::kObserved:
        table_.OnMeasured(chunk);
        now.stage = Stage::kMeasured;
        break;
      default:
        table_.OnGradientEnded(chunk);
        now.stage = Stage::kNone;
        ++updates_;
    }
  }

  const ChunkLayout& layout_;
  FactorTable table_;
  Random random_;
  uint64_t draw_ = 0;
  std::vector<ChunkId> chunks_;
  std::vector<State> states_;
  std::vector<int64_t> observed_;  // by tensor: elements of the pass
  std::vector<int64_t> measured_;
  bool measures_ = true;
  int64_t step_ = 0;
  int64_t updates_ = 0;
};

TEST(FactorTableTest, EveryGradientGoesThroughItsPassesInAnyOrder) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    const Random random({.seed = seed, .stream = 0});
    std::vector<TensorSpec> specs;
    for (int64_t t = 0; t < 1 + random.Below(7, 0); ++t) {
      const auto draw = static_cast<uint64_t>(10 * t);
      const int64_t rows = 1 + random.Below(random.Below(2, draw) == 0 ? 3 : 100, draw + 1);
      TensorSpec spec = Tensor(t, {rows, 1 + random.Below(3 * kChunk, draw + 2) / rows});
      if (random.Below(4, draw + 3) == 0) spec.dtype = DType::kF32;
      if (t > 0 && random.Below(5, draw + 4) == 0) spec.trainability = Trainability::kFrozen;
      spec.data_parallel_degree = 1 + random.Below(2, draw + 5);
      specs.push_back(std::move(spec));
    }
    const ChunkLayout layout = MakeLayout(std::move(specs), OptimizerKind::kAdafactor);
    RandomQueue queue(layout, seed);
    ASSERT_NO_FATAL_FAILURE(queue.Step());
    ASSERT_NO_FATAL_FAILURE(queue.Step());  // overlaps with the first one's updates
    ASSERT_NO_FATAL_FAILURE(queue.SkippedStep());
    ASSERT_NO_FATAL_FAILURE(queue.Step());
    ASSERT_NO_FATAL_FAILURE(queue.Finish());
    EXPECT_EQ(queue.updates(), 3 * queue.chunks());
  }
}

TEST(FactorTableTest, TheNextToObserveAreInTurnOfEachGroup) {
  const ChunkLayout layout = MakeLayout(
      {Tensor(0, {3 * kChunk}), Tensor(1, {kChunk + 1}, DType::kF32)}, OptimizerKind::kAdafactor);
  ASSERT_EQ(layout.chunk_count(), 5);
  FactorTable table(layout);
  const auto next = [&](int64_t count) {
    std::vector<int64_t> chunks;
    for (const ChunkId chunk : table.NextToObserve(count)) chunks.push_back(chunk.value());
    return chunks;
  };
  EXPECT_EQ(next(1), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(next(9), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  table.OnObserved(ChunkId(0));
  table.OnObserved(ChunkId(3));
  EXPECT_EQ(next(1), (std::vector<int64_t>{1, 4}));
  table.OnObserved(ChunkId(4));
  EXPECT_EQ(next(2), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_FALSE(table.MayObserve(ChunkId(3))) << "observed this step";
  EXPECT_FALSE(table.MayObserve(ChunkId(2))) << "not its turn";
}

TEST(FactorTableTest, OtherOptimizersHoldNothing) {
  const ChunkLayout layout = MakeLayout({Tensor(0, {10, 20})}, OptimizerKind::kAdamW);
  FactorTable table(layout);
  EXPECT_FALSE(table.active());
  EXPECT_TRUE(table.MayUpdate(ChunkId(0)));
  EXPECT_EQ(table.bytes(), Bytes(0));
  table.OnGradientEnded(ChunkId(0));
  table.Restart();
}

TEST(FactorTableDeathTest, FrozenTensorsHaveNoFactors) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  TensorSpec frozen = Tensor(0, {10, 20});
  frozen.trainability = Trainability::kFrozen;
  const ChunkLayout layout = MakeLayout({frozen, Tensor(1, {4, 5})}, OptimizerKind::kAdafactor);
  FactorTable table(layout);
  EXPECT_EQ(table.of(TensorId(1)).elements(), 20);
  EXPECT_EQ(table.bytes(), table.of(TensorId(1)).bytes());
  EXPECT_DEATH(table.of(TensorId(0)), "check failed");
  EXPECT_DEATH(table.OnMeasured(ChunkId(1)), "check failed");
}

}  // namespace
}  // namespace gantry
