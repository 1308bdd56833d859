// The rule of chunk_size.h on real tensor lists (padding is printed), at its edges, and against a
// direct reading of its constraints on random models.
#include "chunk/chunk_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/random.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "chunk/chunk_layout.h"
#include "chunk/optimizer_states.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
constexpr Bytes kSlot(2 * kChunkGranularityElements);
constexpr int64_t kMi = int64_t{1} << 20;

struct LlamaShape {
  std::string name;
  int64_t layers;
  int64_t width;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t ffn_width;
  int64_t vocabulary;
};

// The tensors of a Llama model with a separate output head, in the order of their layers.
std::vector<TensorSpec> LlamaTensors(const LlamaShape& shape) {
  std::vector<TensorSpec> tensors;
  const auto add = [&](std::string name, std::vector<int64_t> extents) {
    tensors.push_back(
        {.name = std::move(name), .shape = std::move(extents), .dtype = DType::kBF16});
  };
  add("embed_tokens", {shape.vocabulary, shape.width});
  for (int64_t i = 0; i < shape.layers; ++i) {
    const std::string layer = StrCat("layers.", i, ".");
    add(layer + "input_layernorm", {shape.width});
    add(layer + "q_proj", {shape.heads * shape.head_dim, shape.width});
    add(layer + "k_proj", {shape.kv_heads * shape.head_dim, shape.width});
    add(layer + "v_proj", {shape.kv_heads * shape.head_dim, shape.width});
    add(layer + "o_proj", {shape.width, shape.heads * shape.head_dim});
    add(layer + "post_attention_layernorm", {shape.width});
    add(layer + "gate_proj", {shape.ffn_width, shape.width});
    add(layer + "up_proj", {shape.ffn_width, shape.width});
    add(layer + "down_proj", {shape.width, shape.ffn_width});
  }
  add("norm", {shape.width});
  add("lm_head", {shape.vocabulary, shape.width});
  return tensors;
}

const LlamaShape kDemo{.name = "demo",
                       .layers = 14,
                       .width = 768,
                       .heads = 12,
                       .kv_heads = 4,
                       .head_dim = 64,
                       .ffn_width = 2048,
                       .vocabulary = 256};

struct PaddingCase {
  LlamaShape shape;
  int64_t parameters;  // published; guards the tensor list
  Bytes device_budget;
  Bytes host_budget;
  double padding_max;
};

class PaddingTest : public ::testing::TestWithParam<PaddingCase> {};
TEST_P(PaddingTest, StaysWithinTheGoal) {
  const PaddingCase& c = GetParam();
  const std::vector<TensorSpec> tensors = LlamaTensors(c.shape);
  const auto groups = MeasureGroups(tensors);
  ASSERT_THAT(groups, IsOk());
  const auto chunk_elements = ChooseChunkElements({.groups = *groups,
                                                   .gradient_dtype = DType::kBF16,
                                                   .device_budget = c.device_budget,
                                                   .host_budget = c.host_budget,
                                                   .files = FileTier::kPresent});
  ASSERT_THAT(chunk_elements, IsOk());
  const auto layout = ChunkLayout::Create(
      tensors, {}, {.chunk_elements = *chunk_elements, .gradient_dtype = DType::kBF16});
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->used_elements(), c.parameters);
  EXPECT_LE(layout->padding_fraction(), c.padding_max);
  EXPECT_GE(layout->chunk_count(), kSmallModelChunkCountMin);
  EXPECT_LE(layout->chunk_count(), kChunkCountAimMax);
  EXPECT_GE(c.device_budget, kDeviceSlotsAim * layout->slot_bytes());
  const std::string padding = StrCat(100.0 * layout->padding_fraction(), " %");
  RecordProperty("padding", padding);
  RecordProperty("chunks", StrCat(layout->chunk_count()));
  std::cout << c.shape.name << " on " << c.device_budget << ": " << layout->chunk_count()
            << " chunks of " << layout->slot_bytes() << ", padding " << padding << "\n";
}

LlamaShape Llama2_7B() { return {"LLaMA-2 7B", 32, 4096, 32, 32, 128, 11008, 32000}; }
LlamaShape Llama3_8B() { return {"LLaMA-3 8B", 32, 4096, 32, 8, 128, 14336, 128256}; }
LlamaShape Llama2_70B() { return {"LLaMA-2 70B", 80, 8192, 64, 8, 128, 28672, 32000}; }

INSTANTIATE_TEST_SUITE_P(
    Models, PaddingTest,
    ::testing::Values(PaddingCase{kDemo, 88'495'872, 64_MiB, 512_MiB, 0.01},
                      PaddingCase{kDemo, 88'495'872, 128_MiB, 2_GiB, 0.01},
                      PaddingCase{kDemo, 88'495'872, 24_GiB, 64_GiB, 0.01},
                      PaddingCase{Llama2_7B(), 6'738'415'616, 8_GiB, 32_GiB, 0.001},
                      PaddingCase{Llama2_7B(), 6'738'415'616, 24_GiB, 128_GiB, 0.001},
                      PaddingCase{Llama3_8B(), 8'030'261'248, 8_GiB, 32_GiB, 0.001},
                      PaddingCase{Llama3_8B(), 8'030'261'248, 24_GiB, 128_GiB, 0.001},
                      PaddingCase{Llama2_70B(), 68'976'648'192, 24_GiB, 128_GiB, 0.001},
                      PaddingCase{Llama2_70B(), 68'976'648'192, 80_GiB, 1024_GiB, 0.001}));

GroupExtent Group(int64_t elements, int64_t largest_tensor) {
  return {.dtype = DType::kBF16,
          .trainability = Trainability::kTrainable,
          .data_parallel_degree = 1,
          .elements = elements,
          .used_elements = elements,
          .largest_tensor_elements = largest_tensor};
}

ChunkSizeInput Input(const GroupExtent& group, Bytes device, Bytes host) {
  return {.groups = {group},
          .gradient_dtype = DType::kBF16,
          .device_budget = device,
          .host_budget = host,
          .files = FileTier::kPresent};
}

TEST(ChunkSizeTest, TinyModelsTakeTheSmallestChunks) {
  for (const int64_t elements : {int64_t{1}, int64_t{63}, kChunkGranularityElements,
                                 kChunkGranularityElements + 1, 50 * kChunkGranularityElements}) {
    EXPECT_THAT(ChooseChunkElements(Input(Group(elements, elements), 1_GiB, 1_GiB)),
                IsOkAndHolds(kChunkGranularityElements))
        << elements;
  }
}

TEST(ChunkSizeTest, HugePagesFromFiftyOfThemOn) {
  const auto below = ChooseChunkElements(Input(Group(50 * kMi - 64, kMi), 1_GiB, 1_GiB));
  ASSERT_THAT(below, IsOk());
  EXPECT_LT(*below, kMi);
  EXPECT_THAT(ChooseChunkElements(Input(Group(50 * kMi, kMi), 1_GiB, 1_GiB)), IsOkAndHolds(kMi));
  // A device too small for 24 huge pages gets small chunks instead.
  const auto small_device =
      ChooseChunkElements(Input(Group(50 * kMi, kMi), Bytes(24 * 2 * kMi - 1), 1_GiB));
  ASSERT_THAT(small_device, IsOk());
  EXPECT_LT(*small_device, kMi);
  EXPECT_GE((24 * 2 * kMi - 1) / (*small_device * 2), 24);
}

// A GPU maps memory in multiples of 2 MiB, some in multiples of more.
TEST(ChunkSizeTest, SizesAreMultiplesOfTheGranularity) {
  for (const int64_t granularity : {kChunkGranularityElements, kMi, 3 * kMi, 8 * kMi}) {
    for (const int64_t elements : {kMi, 40 * kMi, 700 * kMi}) {
      ChunkSizeInput input = Input(Group(elements, kMi), 24_GiB, 64_GiB);
      input.granularity_elements = granularity;
      const auto chosen = ChooseChunkElements(input);
      ASSERT_THAT(chosen, IsOk());
      EXPECT_EQ(*chosen % granularity, 0) << *chosen << " of " << granularity;
    }
  }
  ChunkSizeInput input = Input(Group(kMi, kMi), 1_GiB, 1_GiB);
  for (const int64_t granularity : {int64_t{0}, int64_t{-32768}, int64_t{32769}}) {
    input.granularity_elements = granularity;
    EXPECT_THAT(ChooseChunkElements(input), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(ChunkSizeTest, LargeModelsTakeSlotsOfAtLeastEightMebibytes) {
  const auto chunk = ChooseChunkElements(
      Input(Group(kLargeModelChunkCountMin * kLargeModelChunkElements, kMi), 24_GiB, 64_GiB));
  EXPECT_THAT(chunk, IsOkAndHolds(kLargeModelChunkElements));
}

TEST(ChunkSizeTest, HugeModel) {
  // 671 billion parameters, largest tensor 129280 x 7168.
  const GroupExtent group = Group(671'026'404'352, 129280 * 7168);
  const auto wide = ChooseChunkElements(Input(group, 80_GiB, 2048_GiB));
  ASSERT_THAT(wide, IsOk());
  EXPECT_EQ(*wide % kMi, 0);
  const int64_t chunks = CeilDiv(group.elements, *wide);
  EXPECT_GE(chunks, kLargeModelChunkCountMin);
  EXPECT_LE(chunks, kChunkCountAimMax);
  EXPECT_GE(80_GiB, kDeviceSlotsAim * Bytes(*wide * 2));
  // 8 GiB hold 24 slots only when there are more chunks than aimed at: the slots matter more.
  const auto narrow = ChooseChunkElements(Input(group, 8_GiB, 2048_GiB));
  ASSERT_THAT(narrow, IsOk());
  EXPECT_GE(8_GiB, kDeviceSlotsAim * Bytes(*narrow * 2));
  EXPECT_GT(CeilDiv(group.elements, *narrow), kChunkCountAimMax);
}

TEST(ChunkSizeTest, ZeroBudgetsNameTheBytes) {
  using absl::StatusCode;
  // One chunk holds all: a slot of parameters and one of gradients.
  EXPECT_THAT(
      ChooseChunkElements(Input(Group(1000, 1000), 0_B, 0_B)),
      StatusIs(StatusCode::kResourceExhausted,
               AllOf(HasSubstr(StrCat("need ", (2 * kSlot).count(), " bytes of device memory")),
                     HasSubstr("the budget is 0 bytes"))));
  EXPECT_THAT(ChooseChunkElements(Input(Group(1000, 1000), 0_B, 64_GiB)),
              StatusIs(StatusCode::kResourceExhausted));
}

TEST(ChunkSizeTest, TheLeastBudgetIsExact) {
  using absl::StatusCode;
  // Largest tensor of 5 granules: 6 chunks of parameters and gradients.
  const GroupExtent group = Group(20 * kChunkGranularityElements, 5 * kChunkGranularityElements);
  const Bytes least = 6 * 2 * kSlot;
  EXPECT_THAT(ChooseChunkElements(Input(group, least, 1_GiB)), IsOk());
  EXPECT_THAT(
      ChooseChunkElements(Input(group, least - 1_B, 1_GiB)),
      StatusIs(StatusCode::kResourceExhausted,
               AllOf(HasSubstr(StrCat(least.count())), HasSubstr(StrCat(least.count() - 1)))));
  // Activations and a larger operator add to it.
  ChunkSizeInput input = Input(group, least + kSlot, 1_GiB);
  input.activation_bytes = kSlot;
  EXPECT_THAT(ChooseChunkElements(input), IsOk());
  input.activation_bytes = kSlot + 1_B;
  EXPECT_THAT(ChooseChunkElements(input), StatusIs(StatusCode::kResourceExhausted));
  input.activation_bytes = 0_B;
  input.largest_operator_elements = 6 * kChunkGranularityElements;
  EXPECT_THAT(ChooseChunkElements(input), StatusIs(StatusCode::kResourceExhausted));
  input.device_budget = 7 * 2 * kSlot;
  EXPECT_THAT(ChooseChunkElements(input), IsOk());
}

TEST(ChunkSizeTest, AnUpdateNeedsRoomSomewhere) {
  using absl::StatusCode;
  // One chunk: 1 + 1 slots to compute, 1 + 1 + 6 to update.
  const GroupExtent group = Group(1000, 1000);
  EXPECT_THAT(
      ChooseChunkElements(Input(group, 2 * kSlot, 0_B)),
      StatusIs(StatusCode::kResourceExhausted,
               AllOf(HasSubstr("update"), HasSubstr(StrCat((8 * kSlot).count(), " bytes")))));
  EXPECT_THAT(ChooseChunkElements(Input(group, 2 * kSlot, 8 * kSlot)), IsOk());
  EXPECT_THAT(ChooseChunkElements(Input(group, 8 * kSlot, 0_B)), IsOk());
  GroupExtent frozen = group;
  frozen.trainability = Trainability::kFrozen;
  EXPECT_THAT(ChooseChunkElements(Input(frozen, kSlot, 0_B)), IsOk());
}

TEST(ChunkSizeTest, WithoutFilesEverythingMustFitInMemory) {
  using absl::StatusCode;
  const GroupExtent group = Group(100 * kChunkGranularityElements, 100);
  const Bytes stored = 100 * 7 * kSlot;  // parameters and 3 f32 states
  ChunkSizeInput input = Input(group, 10_MiB, stored - 10_MiB);
  input.files = FileTier::kAbsent;
  EXPECT_THAT(ChooseChunkElements(input), IsOk());
  input.host_budget -= 1_B;
  EXPECT_THAT(ChooseChunkElements(input),
              StatusIs(StatusCode::kResourceExhausted,
                       AllOf(HasSubstr(StrCat(stored.count())), HasSubstr("no file tier"))));
  input.files = FileTier::kPresent;
  EXPECT_THAT(ChooseChunkElements(input), IsOk());
  // Each of 4 ranks stores a quarter.
  input.files = FileTier::kAbsent;
  input.groups[0].data_parallel_degree = 4;
  input.host_budget = 25 * 7 * kSlot - 2_MiB;
  input.device_budget = 2_MiB;
  EXPECT_THAT(ChooseChunkElements(input), IsOk());
}

// Per chunk of bf16 parameters, with f32 gradients: parameter 1, gradient 2, and the states.
TEST(ChunkSizeTest, OptimizerAndFormatDecideWhatMustFit) {
  struct Case {
    OptimizerKind optimizer;
    StateFormat format;
    int64_t state_slots;
  };
  for (const Case& c : {Case{OptimizerKind::kAdamW, StateFormat::kF32, 6},
                        Case{OptimizerKind::kAdamW, StateFormat::kSplitMaster, 5},
                        Case{OptimizerKind::kAdamW, StateFormat::kEightBit, 3},
                        Case{OptimizerKind::kLion, StateFormat::kF32, 4},
                        Case{OptimizerKind::kLion, StateFormat::kEightBit, 3}}) {
    SCOPED_TRACE(StrCat(Name(c.optimizer), " in ", Name(c.format)));
    const GroupExtent group = Group(100 * kChunkGranularityElements, 100);
    const Bytes stored = 100 * (1 + c.state_slots) * kSlot;
    ChunkSizeInput input = Input(group, 10_MiB, stored - 10_MiB);
    input.optimizer = c.optimizer;
    input.state_format = c.format;
    input.files = FileTier::kAbsent;
    EXPECT_THAT(ChooseChunkElements(input), IsOk());
    input.host_budget -= 1_B;
    EXPECT_THAT(ChooseChunkElements(input),
                StatusIs(absl::StatusCode::kResourceExhausted, StrCat(stored.count())));
    const GroupExtent one = Group(kChunkGranularityElements, 100);
    const int64_t update_slots = 1 + SizeOf(input.gradient_dtype) / 2 + c.state_slots;
    input = Input(one, 3 * kSlot, update_slots * kSlot - 1_B);
    input.optimizer = c.optimizer;
    input.state_format = c.format;
    EXPECT_THAT(ChooseChunkElements(input),
                StatusIs(absl::StatusCode::kResourceExhausted, "update"));
    input.host_budget += 1_B;
    EXPECT_THAT(ChooseChunkElements(input), IsOk());
  }
}

TEST(ChunkSizeTest, PaddingOfASmallSecondGroupCounts) {
  // A large frozen base with small trainable adapters: chunks stay small enough for the adapters.
  GroupExtent base = Group(400 * kMi, 4 * kMi);
  base.trainability = Trainability::kFrozen;
  const GroupExtent adapters = Group(2 * kMi, 8192);
  const auto chunk = ChooseChunkElements({.groups = {base, adapters},
                                          .gradient_dtype = DType::kF32,
                                          .device_budget = 8_GiB,
                                          .host_budget = 8_GiB,
                                          .files = FileTier::kPresent});
  ASSERT_THAT(chunk, IsOk());
  EXPECT_EQ(2 * kMi % *chunk, 0);
}

// Padding of the second group asks for small chunks, which the aims that come before it refuse.
TEST(ChunkSizeTest, SlotSizeAndChunkCountComeBeforePadding) {
  const GroupExtent adapters = Group(kMi, 8192);
  const auto chunk_for = [&](int64_t base_elements) {
    GroupExtent base = Group(base_elements, 4 * kMi);
    base.trainability = Trainability::kFrozen;
    return ChooseChunkElements({.groups = {base, adapters},
                                .gradient_dtype = DType::kF32,
                                .device_budget = 24_GiB,
                                .host_budget = 64_GiB,
                                .files = FileTier::kPresent});
  };
  EXPECT_THAT(chunk_for(1200 * kMi), IsOkAndHolds(4 * kMi));   // 1 Mi would pad nothing
  EXPECT_THAT(chunk_for(12000 * kMi), IsOkAndHolds(5 * kMi));  // 4 Mi would make 3001 chunks
}

TEST(ChunkSizeTest, BadInput) {
  using absl::StatusCode;
  const auto expect_invalid = [](const ChunkSizeInput& input, const char* message) {
    EXPECT_THAT(ChooseChunkElements(input), StatusIs(StatusCode::kInvalidArgument, message));
  };
  const ChunkSizeInput good = Input(Group(1000, 100), 1_GiB, 1_GiB);
  ASSERT_THAT(ChooseChunkElements(good), IsOk());
  ChunkSizeInput input = good;
  input.groups.clear();
  expect_invalid(input, "no tensors");
  for (const int64_t elements : {int64_t{0}, int64_t{-5}, kModelElementsMax + 1}) {
    input = good;
    input.groups[0].elements = elements;
    expect_invalid(input, "a group of");
  }
  input = good;
  input.groups.push_back(Group(kModelElementsMax, 1));
  expect_invalid(input, "1000 before it");
  input = good;
  input.groups[0].used_elements = 1001;
  expect_invalid(input, "1001 of them used");
  input = good;
  input.groups[0].largest_tensor_elements = 0;
  expect_invalid(input, "largest tensor of 0");
  input = good;
  input.groups[0].data_parallel_degree = 0;
  expect_invalid(input, "degree of 0");
  input = good;
  input.device_budget = Bytes(-1);
  expect_invalid(input, "budget of -1 bytes");
  input = good;
  input.host_budget = Bytes(std::numeric_limits<int64_t>::max());
  expect_invalid(input, "budget of 9223372036854775807 bytes");
  input = good;
  input.optimizer = OptimizerKind::kLion;
  input.state_format = StateFormat::kSplitMaster;
  expect_invalid(input, "variance");
  input = good;
  input.largest_operator_elements = -1;
  expect_invalid(input, "largest operator of -1");
}

// Random models: the answer is legal, makes a layout, and keeps 24 slots on the device and the
// chunk counts whenever the simplest size that could does.
TEST(ChunkSizeTest, RandomModelsGetALegalSize) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    const Random random({.seed = seed, .stream = 0});
    const int64_t elements = 1 + random.Below(int64_t{1} << (10 + random.Below(28, 0)), 1);
    const int64_t largest = 1 + random.Below(std::max<int64_t>(1, elements / 8), 2);
    ChunkSizeInput input =
        Input(Group(elements, largest),
              Bytes(1 + random.Below(int64_t{1} << (18 + random.Below(18, 3)), 4)),
              Bytes(random.Below(64, 5) << 26));
    input.groups[0].data_parallel_degree = 1 + random.Below(4, 6);
    const auto chunk = ChooseChunkElements(input);
    if (!chunk.ok()) {
      EXPECT_THAT(chunk, StatusIs(absl::StatusCode::kResourceExhausted, "bytes"));
      continue;
    }
    EXPECT_GT(*chunk, 0);
    EXPECT_EQ(*chunk % kChunkGranularityElements, 0);
    const int64_t chunks = RoundUp(CeilDiv(elements, *chunk), input.groups[0].data_parallel_degree);
    EXPECT_LE(chunks, kChunkCountMax);
    const int64_t device_slots = input.device_budget.count() / (*chunk * 2);
    EXPECT_GE(device_slots, 2);
    if (input.device_budget >= kDeviceSlotsAim * Bytes(2 * kChunkGranularityElements)) {
      EXPECT_GE(device_slots, kDeviceSlotsAim);
    }
    if (elements >= kSmallModelChunkCountMin * kChunkGranularityElements) {
      EXPECT_GE(chunks, kSmallModelChunkCountMin);
    }
  }
}

}  // namespace
}  // namespace gantry
