// The rules of LeastBudget on steps and placements made by hand.
#include "gemini/budget.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

constexpr int64_t kChunk = kChunkGranularityElements;

// Chunks 0 to 2 trainable bf16 (8 slots each with states), 3 trainable f32 (2 + 2 + 4), 4 frozen.
class BudgetTest : public ::testing::Test {
 protected:
  explicit BudgetTest(StateFormat format = StateFormat::kF32) {
    auto layout = ChunkLayout::Create(
        {{.name = "w", .shape = {3 * kChunk}, .dtype = DType::kBF16},
         {.name = "f32", .shape = {kChunk}, .dtype = DType::kF32},
         {.name = "frozen",
          .shape = {kChunk},
          .dtype = DType::kBF16,
          .trainability = Trainability::kFrozen}},
        {}, {.chunk_elements = kChunk, .gradient_dtype = DType::kBF16, .state_format = format});
    GANTRY_CHECK(layout.ok()) << layout.status().ToString();
    layout_ = std::make_unique<ChunkLayout>(*std::move(layout));
    placement_.chunks.assign(5, {.update_tier = Tier::kHost,
                                 .parameter_on_device = Residency::kFloating,
                                 .optimizer_on_update_tier = Residency::kFloating});
    for (int block = 0; block < 5 * kStateKindCount; ++block) {
      const BlockId id{static_cast<StateKind>(block / 5), ChunkId(block % 5)};
      step_.trace.block_slots.push_back(
          layout_->HasBlock(id) ? static_cast<int8_t>(layout_->slots_of(id)) : int8_t{0});
    }
  }

  // A moment that uses the blocks (kind, chunk) beside activations of so many slots.
  void AddMoment(std::string name, Phase phase, int64_t activations,
                 const std::vector<BlockId>& blocks) {
    Trace& trace = step_.trace;
    trace.moments.push_back({.phase = phase,
                             .name = static_cast<int32_t>(trace.names.size()),
                             .first_use = static_cast<int64_t>(trace.uses.size()),
                             .use_count = static_cast<int64_t>(blocks.size()),
                             .compute = 0,
                             .activation_slots = activations});
    trace.names.push_back(std::move(name));
    for (const BlockId& id : blocks) {
      trace.uses.push_back(
          {static_cast<int32_t>(static_cast<int64_t>(id.kind) * 5 + id.chunk.value()),
           BlockAccess::kRead});
    }
  }
  static BlockId P(int64_t chunk) { return {StateKind::kParameter, ChunkId(chunk)}; }
  static BlockId G(int64_t chunk) { return {StateKind::kGradient, ChunkId(chunk)}; }

  BudgetInput Input(bool unified, bool files) {
    BudgetInput input{
        .layout = layout_.get(), .steps = {}, .placement = &placement_, .machine = {}};
    if (!step_.trace.moments.empty()) input.steps = {&pointer_, 1};
    input.machine.slot_bytes = layout_->slot_bytes();
    input.machine.unified = unified;
    input.machine.has_file_tier = files;
    return input;
  }

  std::unique_ptr<ChunkLayout> layout_;
  Placement placement_{.eviction = EvictionOrder::kFurthestNextUse, .chunks = {}};
  CompiledStep step_;
  const CompiledStep* pointer_ = &step_;
};

TEST_F(BudgetTest, FactsCountSlotsPerChunk) {
  const std::vector<ChunkFacts> facts = FactsOf(*layout_);
  ASSERT_EQ(facts.size(), 5u);
  EXPECT_EQ(facts[0].parameter_slots, 1);
  EXPECT_EQ(facts[0].gradient_slots, 1);
  EXPECT_EQ(facts[0].optimizer_slots, 6);
  EXPECT_EQ(facts[3].parameter_slots, 2);
  EXPECT_EQ(facts[3].gradient_slots, 2);
  EXPECT_EQ(facts[3].optimizer_slots, 4);
  EXPECT_EQ(facts[4].parameter_slots, 1);
  EXPECT_EQ(facts[4].gradient_slots, 0);
  EXPECT_EQ(facts[4].optimizer_slots, 0);
}

TEST_F(BudgetTest, TheDeviceHoldsTheLargestOperatorWithItsActivations) {
  AddMoment("small", Phase::kForward, 5, {P(0)});
  AddMoment("largest", Phase::kBackward, 3, {P(0), G(0), P(3), G(3)});
  AddMoment("update", Phase::kOptimizer, 0, {P(0), P(1), P(2), P(3), P(4), G(0), G(1), G(2), G(3)});
  const BudgetNeed need = LeastBudget(Input(false, true));
  EXPECT_EQ(need.device_slots, 3 + 6);
  EXPECT_EQ(need.operator_block_slots, 6);
  EXPECT_EQ(need.operator_name, "largest");
  EXPECT_EQ(need.activation_slots, 5);
}

TEST_F(BudgetTest, TheHostHoldsOneUpdateAndOneBlockOnItsWay) {
  const BudgetNeed need = LeastBudget(Input(false, true));
  EXPECT_EQ(need.update_slots, 8);
  EXPECT_EQ(need.host_slots, 8 + 2);
  EXPECT_EQ(need.device_slots, 0);
}

TEST_F(BudgetTest, UpdatesOnTheDeviceNeedRoomBesideTheActivations) {
  AddMoment("operator", Phase::kForward, 4, {P(0)});
  for (ChunkPlacement& place : placement_.chunks) place.update_tier = Tier::kDevice;
  const BudgetNeed need = LeastBudget(Input(false, true));
  EXPECT_EQ(need.device_slots, 4 + 8);
  // A parameter and its master are written together on the host.
  EXPECT_EQ(need.host_slots, 3);
  placement_.chunks[0].update_tier = Tier::kHost;
  EXPECT_EQ(LeastBudget(Input(false, true)).host_slots, 8 + 3);
}

TEST_F(BudgetTest, AUnifiedDeviceUpdatesInPlaceAndNeedsNoHost) {
  AddMoment("operator", Phase::kForward, 4, {P(0)});
  const BudgetNeed need = LeastBudget(Input(true, true));
  EXPECT_EQ(need.device_slots, 4 + 8);
  EXPECT_EQ(need.host_slots, 0);
}

TEST_F(BudgetTest, WithoutFilesEverythingIsInMemory) {
  AddMoment("operator", Phase::kForward, 4, {P(0)});
  EXPECT_EQ(LeastBudget(Input(true, false)).device_slots, 3 * 8 + 8 + 1 + 4);
  EXPECT_EQ(LeastBudget(Input(false, false)).host_slots, 3 * 8 + 8 + 1 + 2);
  // What is pinned on the device and updated there needs no host.
  placement_.chunks[0] = {.update_tier = Tier::kDevice,
                          .parameter_on_device = Residency::kPinned,
                          .optimizer_on_update_tier = Residency::kPinned};
  const BudgetNeed need = LeastBudget(Input(false, false));
  EXPECT_EQ(need.host_slots, 2 * 8 + 8 + 1 + 3);
  EXPECT_EQ(need.device_slots, 8 + 4);
  // A parameter that may float needs a place on the host.
  placement_.chunks[0].parameter_on_device = Residency::kFloating;
  EXPECT_EQ(LeastBudget(Input(false, false)).host_slots, 2 * 8 + 8 + 1 + 3 + 1);
}

class SplitMasterBudgetTest : public BudgetTest {
 protected:
  SplitMasterBudgetTest() : BudgetTest(StateFormat::kSplitMaster) {}
};

// bf16 chunks take 7 slots with their states, f32 ones 8 as before.
TEST_F(SplitMasterBudgetTest, ALowHalfTakesOneSlot) {
  const std::vector<ChunkFacts> facts = FactsOf(*layout_);
  EXPECT_EQ(facts[0].optimizer_slots, 5);
  EXPECT_EQ(facts[3].optimizer_slots, 4);
  AddMoment("operator", Phase::kForward, 4, {P(0)});
  EXPECT_EQ(LeastBudget(Input(true, false)).device_slots, 3 * 7 + 8 + 1 + 4);
  for (ChunkPlacement& place : placement_.chunks) place.update_tier = Tier::kDevice;
  // A parameter and its low half are written together on the host.
  EXPECT_EQ(LeastBudget(Input(false, true)).host_slots, 2);
  // Without files the host holds the parameters, which float, and device and host exchange blocks
  // of one slot and of two: with one free on each, one of two could not move.
  EXPECT_EQ(LeastBudget(Input(false, false)).host_slots, 3 + 2 + 1 + 3);
  // Where all updates run on the host, nothing of it has its place elsewhere.
  for (ChunkPlacement& place : placement_.chunks) place.update_tier = Tier::kHost;
  EXPECT_EQ(LeastBudget(Input(false, false)).host_slots, 3 * 7 + 8 + 1 + 2);
}

// All blocks take two slots: an even budget leaves none over.
TEST(BudgetOfTwoSlotBlocks, AnExchangeNeedsOneBlock) {
  const auto layout =
      ChunkLayout::Create({{.name = "w", .shape = {2 * kChunk}, .dtype = DType::kF32}}, {},
                          {.chunk_elements = kChunk, .gradient_dtype = DType::kF32});
  ASSERT_THAT(layout, IsOk());
  const Placement placement{
      .eviction = EvictionOrder::kFurthestNextUse,
      .chunks = {2, ChunkPlacement{.update_tier = Tier::kDevice,
                                   .parameter_on_device = Residency::kFloating,
                                   .optimizer_on_update_tier = Residency::kFloating}}};
  BudgetInput input{.layout = &*layout, .steps = {}, .placement = &placement, .machine = {}};
  input.machine.slot_bytes = layout->slot_bytes();
  const BudgetNeed need = LeastBudget(input);
  EXPECT_EQ(need.device_slots, 2 * 6);
  EXPECT_EQ(need.host_slots, 2 * 2 + 2);
}

class EightBitBudgetTest : public BudgetTest {
 protected:
  EightBitBudgetTest() : BudgetTest(StateFormat::kEightBit) {}
};

TEST_F(EightBitBudgetTest, BothMomentsTakeOneSlot) {
  const std::vector<ChunkFacts> facts = FactsOf(*layout_);
  EXPECT_EQ(facts[0].optimizer_slots, 2 + 1);
  EXPECT_EQ(facts[3].optimizer_slots, 1);
  EXPECT_EQ(facts[4].optimizer_slots, 0);
  const BudgetNeed need = LeastBudget(Input(false, true));
  EXPECT_EQ(need.update_slots, 5);
  EXPECT_EQ(need.host_slots, 5 + 2);
}

TEST_F(BudgetTest, TheMessageNamesTierOperatorAndFigures) {
  AddMoment("big operator", Phase::kForward, 3, {P(0), P(1), P(2)});
  BudgetInput input = Input(false, true);
  const BudgetNeed need = LeastBudget(input);
  input.machine.device_slots = 6;
  input.machine.host_slots = 10;
  EXPECT_THAT(CheckBudget(input, need), IsOk());
  input.machine.device_slots = 5;
  EXPECT_THAT(CheckBudget(input, need),
              StatusIs(absl::StatusCode::kResourceExhausted, "the device budget holds 5 slots"));
  EXPECT_THAT(CheckBudget(input, need),
              StatusIs(absl::StatusCode::kResourceExhausted, "'big operator'"));
  EXPECT_THAT(CheckBudget(input, need),
              StatusIs(absl::StatusCode::kResourceExhausted, "393216 bytes"));
  input.machine.device_slots = 6;
  input.machine.host_slots = 9;
  EXPECT_THAT(CheckBudget(input, need),
              StatusIs(absl::StatusCode::kResourceExhausted, "the host budget holds 9 slots"));
}

}  // namespace
}  // namespace gantry
