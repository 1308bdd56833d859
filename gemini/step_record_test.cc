// Steps composed of two records are those that a step with the same choices makes: event by event,
// address by address. The steps are random: layers that allocate, lease and free in any order.
#include "gemini/step_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "device/free_ranges.h"
#include "gemini/memory_tracer.h"

namespace gantry {
namespace {

constexpr Bytes kSlot{4096};

struct Memory {
  int64_t offset;
  int64_t bytes;
};

// Makes the events of one step, as a model and an arena would.
class RandomStep {
 public:
  RandomStep(uint64_t seed, LayerSaving wanted, std::vector<LayerSaving> savings)
      : seed_(seed), wanted_(wanted), savings_(std::move(savings)), ranges_(int64_t{1} << 40) {}

  StepRecord Run(int64_t layers, int64_t micro_batches) {
    tracer_.Begin({.optimizer = OptimizerStep{.learning_rate = 0.1}});
    for (int64_t m = 0; m < micro_batches; ++m) {
      tracer_.OnMicroBatch();
      std::vector<Layer> made;
      Memory stream = Allocate(3000);
      for (int64_t l = 0; l < layers; ++l) {
        made.push_back(Forward(l));
        made.back().input = std::exchange(stream, made.back().output);
      }
      Lease("head", Phase::kForward, 100);
      Memory gradient = Allocate(3000);
      Free(stream);
      Lease("head", Phase::kBackward, 100);
      for (int64_t l = layers; l-- > 0;)
        gradient = Backward(made[static_cast<size_t>(l)], l, gradient);
      Free(gradient);
    }
    return tracer_.End();
  }

 private:
  struct Layer {
    int64_t pass = 0;
    LayerSaving saving = LayerSaving::kKeep;
    std::vector<Memory> saved = {};
    Memory input{};
    Memory output{};
  };

  Memory Allocate(int64_t bytes) {
    const Memory memory{.offset = *ranges_.Take(bytes), .bytes = bytes};
    tracer_.OnAllocate(memory.offset, memory.bytes);
    return memory;
  }
  void Free(const Memory& memory) {
    if (memory.offset < 0) return;  // in blocks
    ranges_.Return(memory.offset, memory.bytes);
    tracer_.OnFree(memory.offset, memory.bytes);
  }
  void Lease(const std::string& name, Phase phase, int64_t tensor) {
    const ParameterUse use{TensorId(tensor), phase == Phase::kForward ? ParameterAccess::kRead
                                                                      : ParameterAccess::kGradient};
    tracer_.OnAcquire({&use, 1}, name, phase);
    tracer_.OnRelease();
  }

  // The operators of a layer: what is saved, in order. `moved`: in blocks, not in the arena. The
  // last operators of a layer that runs again are not needed.
  std::vector<Memory> Operators(int64_t layer, Phase phase, bool moved, bool all) {
    const Random random({.seed = seed_, .stream = static_cast<uint64_t>(layer)});
    uint64_t drawn = 0;
    std::vector<Memory> saved;
    std::vector<Memory> temporary;
    const int64_t operators = 1 + random.Below(5, drawn++);
    for (int64_t i = 0; i < operators; ++i) {
      const int64_t bytes = 1 + random.Below(9000, drawn++);
      const bool saves = random.Below(2, drawn++) == 0;
      const bool frees = random.Below(2, drawn++) == 0;
      if (saves && moved) {
        saved.push_back({.offset = -1, .bytes = bytes});
      } else {
        (saves ? saved : temporary).push_back(Allocate(bytes));
      }
      Lease(StrCat("operator ", i), phase, 10 * layer + i);
      if (!frees || temporary.empty()) continue;
      Free(temporary.front());
      temporary.erase(temporary.begin());
    }
    if (all) Lease("last", phase, 10 * layer + 9);
    for (const Memory& memory : temporary) Free(memory);
    return saved;
  }

  Layer Forward(int64_t l) {
    Layer layer{.pass = passes_};
    layer.saving = savings_[static_cast<size_t>(passes_++) % savings_.size()];
    tracer_.OnBeginLayer(
        {.layer = static_cast<int32_t>(l), .wanted = wanted_, .saving = layer.saving});
    layer.saved = Operators(l, Phase::kForward, layer.saving == LayerSaving::kMove, true);
    if (layer.saving == LayerSaving::kRecompute) {
      for (const Memory& memory : std::exchange(layer.saved, {})) Free(memory);
    }
    layer.output = Allocate(2000 + 100 * l);
    tracer_.OnEndLayer(layer.pass, layer.output.offset);
    return layer;
  }

  Memory Backward(Layer& layer, int64_t l, Memory gradient) {
    tracer_.OnBeginLayerBackward(layer.pass);
    if (layer.saving == LayerSaving::kRecompute) {
      layer.saved = Operators(l, Phase::kBackward, false, false);
    }
    const Memory next = Allocate(2500);
    Lease("backward", Phase::kBackward, 10 * l);
    Free(gradient);
    for (const Memory& memory : layer.saved) Free(memory);
    Free(layer.input);
    tracer_.OnEndLayerBackward(layer.pass);
    return next;
  }

  const uint64_t seed_;
  const LayerSaving wanted_;
  const std::vector<LayerSaving> savings_;
  FreeRanges ranges_;
  MemoryTracer tracer_;
  int64_t passes_ = 0;
};

using Line = std::tuple<int, int, std::string, int64_t, int64_t, int64_t>;

std::vector<Line> LinesOf(const StepRecord& record) {
  std::vector<Line> lines;
  for (const StepRecord::Event& event : record.events) {
    const bool lease = event.kind == StepRecord::Event::Kind::kAcquire;
    lines.emplace_back(
        static_cast<int>(event.kind), static_cast<int>(event.phase),
        lease ? record.names[static_cast<size_t>(event.name)] : "",
        lease ? record.uses[static_cast<size_t>(event.first_use)].tensor.value() : event.offset,
        event.bytes, event.use_count);
  }
  return lines;
}

std::vector<LayerSaving> Repeat(LayerSaving saving, size_t passes) {
  return std::vector<LayerSaving>(passes, saving);
}

class ComposeTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(ComposeTest, IsTheStepWithTheseChoices) {
  const uint64_t seed = GetParam();
  SCOPED_TRACE(StrCat("seed ", seed));
  const Random random({.seed = seed, .stream = 1'000});
  const int64_t layers = 1 + random.Below(5, 0);
  const int64_t micro_batches = 1 + random.Below(3, 1);
  const auto passes = static_cast<size_t>(layers * micro_batches);
  const auto run = [&](const std::vector<LayerSaving>& savings) {
    return RandomStep(seed, LayerSaving::kPlanned, savings).Run(layers, micro_batches);
  };
  const StepRecord kept = run(Repeat(LayerSaving::kKeep, passes));
  const StepRecord again = run(Repeat(LayerSaving::kRecompute, passes));
  const SavedMemory saved = LayOutSaved(kept, kSlot);
  for (uint64_t trial = 0; trial < 6; ++trial) {
    std::vector<LayerSaving> savings;
    for (uint64_t p = 0; p < passes; ++p) {
      constexpr LayerSaving kSavings[] = {LayerSaving::kKeep, LayerSaving::kRecompute,
                                          LayerSaving::kMove};
      savings.push_back(kSavings[random.Below(3, 100 * trial + p + 2)]);
    }
    const auto composed = ComposeRecord(kept, &again, saved, savings);
    ASSERT_THAT(composed, IsOk());
    EXPECT_EQ(LinesOf(*composed), LinesOf(run(savings)));
    for (size_t p = 0; p < passes; ++p) EXPECT_EQ(composed->layers[p].saving, savings[p]);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ComposeTest, ::testing::Range(uint64_t{0}, uint64_t{40}));

// Each lease says which one of the kept step takes as long.
TEST(ComposeRecordTest, LeasesThatRunAgainAreThoseOfTheForwardPass) {
  const auto run = [](LayerSaving saving) {
    return RandomStep(3, LayerSaving::kPlanned, {saving}).Run(2, 1);
  };
  const StepRecord kept = run(LayerSaving::kKeep);
  const StepRecord again = run(LayerSaving::kRecompute);
  const auto composed =
      ComposeRecord(kept, &again, LayOutSaved(kept, kSlot), Repeat(LayerSaving::kRecompute, 2));
  ASSERT_THAT(composed, IsOk());
  const auto names = [](const StepRecord& record) {
    std::vector<std::string> result;
    for (const StepRecord::Event& event : record.events) {
      if (event.kind != StepRecord::Event::Kind::kAcquire) continue;
      result.push_back(record.names[static_cast<size_t>(event.name)]);
    }
    return result;
  };
  const std::vector<std::string> kept_names = names(kept);
  const std::vector<std::string> composed_names = names(*composed);
  EXPECT_GT(composed_names.size(), kept_names.size());
  size_t lease = 0;
  for (const StepRecord::Event& event : composed->events) {
    if (event.kind != StepRecord::Event::Kind::kAcquire) continue;
    EXPECT_EQ(kept_names[static_cast<size_t>(event.origin)], composed_names[lease++]);
  }
}

TEST(ComposeRecordTest, RecordsOfDifferentStepsAreRefused) {
  const StepRecord kept = RandomStep(3, LayerSaving::kPlanned, {LayerSaving::kKeep}).Run(2, 1);
  const StepRecord other =
      RandomStep(3, LayerSaving::kPlanned, {LayerSaving::kRecompute}).Run(3, 1);
  EXPECT_EQ(
      ComposeRecord(kept, &other, LayOutSaved(kept, kSlot), Repeat(LayerSaving::kRecompute, 2))
          .status()
          .code(),
      absl::StatusCode::kFailedPrecondition);
}

// A place is free again when the backward pass of its last layer is over: micro-batches that go
// forward and backward one after the other need no more than one.
TEST(LayOutSavedTest, MicroBatchesTakeTheSamePlaces) {
  const auto blocks = [](int64_t micro_batches) {
    const StepRecord kept =
        RandomStep(5, LayerSaving::kMove, {LayerSaving::kKeep}).Run(4, micro_batches);
    const SavedMemory saved = LayOutSaved(kept, kSlot);
    for (const SavedMemory::Pass& pass : saved.passes) {
      EXPECT_LE(pass.bytes, pass.blocks * kSlot.count());
      EXPECT_LE(pass.first_block + pass.blocks, saved.blocks);
    }
    return saved.blocks;
  };
  EXPECT_GT(blocks(1), 0);
  EXPECT_EQ(blocks(3), blocks(1));
}

TEST(LayOutSavedTest, WhatIsNeverToMoveGetsNoBlocks) {
  const StepRecord kept = RandomStep(5, LayerSaving::kKeep, {LayerSaving::kKeep}).Run(4, 1);
  EXPECT_EQ(LayOutSaved(kept, kSlot).blocks, 0);
}

}  // namespace
}  // namespace gantry
