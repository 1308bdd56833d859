// Random tensors against the promises of the header, hand-made layouts for the figures, and every
// error.
#include "chunk/chunk_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "chunk/block.h"
#include "chunk/optimizer_states.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Aliases = std::vector<std::pair<std::string, std::string>>;
constexpr int64_t kGranule = kChunkGranularityElements;

ChunkLayout::Options BF16Options(int64_t chunk_elements) {
  return {.chunk_elements = chunk_elements, .gradient_dtype = DType::kBF16};
}

TensorSpec Tensor(std::string name, std::vector<int64_t> shape, DType dtype = DType::kBF16) {
  return {.name = std::move(name), .shape = std::move(shape), .dtype = dtype};
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_({.seed = seed, .stream = 0}) {}
  int64_t Below(int64_t bound) { return random_.Below(bound, index_++); }

 private:
  Random random_;
  uint64_t index_ = 0;
};

std::vector<TensorSpec> RandomTensors(Dice& dice) {
  std::vector<TensorSpec> tensors;
  const int64_t count = 1 + dice.Below(40);
  for (int64_t i = 0; i < count; ++i) {
    TensorSpec tensor = Tensor(StrCat("t", i), {});
    const int64_t rank = dice.Below(4);
    const int64_t extent_max = rank == 3 ? 48 : (rank == 2 ? 300 : 90000);
    for (int64_t axis = 0; axis < rank; ++axis) tensor.shape.push_back(1 + dice.Below(extent_max));
    tensor.dtype = static_cast<DType>(dice.Below(3));
    tensor.trainability = dice.Below(3) == 0 ? Trainability::kFrozen : Trainability::kTrainable;
    tensor.data_parallel_degree = dice.Below(4) == 0 ? 1 + dice.Below(5) : 1;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

int64_t ElementsOf(const TensorSpec& tensor) {
  int64_t elements = 1;
  for (const int64_t extent : tensor.shape) elements *= extent;
  return elements;
}

// Walks all slices: sorted, disjoint, inside the chunk, at the tensor's place; and every element of
// every tensor in exactly one of them.
void CheckSlices(const ChunkLayout& layout) {
  std::vector<int64_t> covered(static_cast<size_t>(layout.tensor_count()), 0);
  for (int64_t c = 0; c < layout.chunk_count(); ++c) {
    const ChunkId chunk(c);
    const ChunkGroup& group = layout.group_of(chunk);
    const int64_t chunk_begin = layout.index_in_group(chunk) * layout.chunk_elements();
    int64_t position = 0;
    for (const TensorSlice& slice : layout.SlicesIn(chunk)) {
      ASSERT_GE(slice.chunk_begin, position) << chunk;
      ASSERT_GE(slice.elements, 1);
      position = slice.chunk_begin + slice.elements;
      ASSERT_LE(position, layout.chunk_elements());
      const TensorPlacement& place = layout.placement(slice.tensor);
      ASSERT_EQ(&layout.groups()[static_cast<size_t>(place.group)], &group);
      ASSERT_EQ(chunk_begin + slice.chunk_begin, place.offset + slice.tensor_begin);
      // Ascending without a gap from 0: each element once.
      int64_t& done = covered[static_cast<size_t>(slice.tensor.value())];
      ASSERT_EQ(slice.tensor_begin, done);
      done += slice.elements;
      const ChunkLayout::ChunkRange range = layout.ChunksOf(slice.tensor);
      ASSERT_TRUE(range.first <= chunk && chunk <= range.last);
      if (slice.tensor_begin == 0) {
        ASSERT_EQ(range.first, chunk);
      }
      if (done == place.elements) {
        ASSERT_EQ(range.last, chunk);
      }
    }
  }
  for (int64_t t = 0; t < layout.tensor_count(); ++t) {
    EXPECT_EQ(covered[static_cast<size_t>(t)], ElementsOf(layout.tensor(TensorId(t)))) << t;
  }
}

// Chunks of all groups are consecutive, their number is right, and tail chunks alone are empty.
void CheckGroups(const ChunkLayout& layout) {
  int64_t next_chunk = 0;
  int64_t used = 0;
  for (const ChunkGroup& group : layout.groups()) {
    EXPECT_EQ(group.first_chunk.value(), next_chunk);
    EXPECT_EQ(group.chunk_count % group.data_parallel_degree, 0);
    int64_t filled = 0;
    for (int64_t i = 0; i < group.chunk_count; ++i) {
      const ChunkId chunk(next_chunk + i);
      EXPECT_EQ(&layout.group_of(chunk), &group);
      EXPECT_EQ(layout.index_in_group(chunk), i);
      if (layout.SlicesIn(chunk).empty()) continue;
      EXPECT_EQ(filled, i) << "an empty chunk before a filled one";
      ++filled;
    }
    EXPECT_EQ(group.chunk_count, RoundUp(filled, group.data_parallel_degree));
    next_chunk += group.chunk_count;
    used += group.used_elements;
  }
  EXPECT_EQ(layout.chunk_count(), next_chunk);
  EXPECT_EQ(layout.used_elements(), used);
  EXPECT_NEAR(
      layout.padding_fraction(),
      1.0 - static_cast<double>(used) / static_cast<double>(next_chunk * layout.chunk_elements()),
      1e-12);
}

// Tensors of a group lie in registration order with less than one alignment between them.
void CheckPlacements(const ChunkLayout& layout) {
  std::vector<int64_t> end(layout.groups().size(), 0);
  for (int64_t t = 0; t < layout.tensor_count(); ++t) {
    const TensorSpec& tensor = layout.tensor(TensorId(t));
    const TensorPlacement& place = layout.placement(TensorId(t));
    const ChunkGroup& group = layout.groups()[static_cast<size_t>(place.group)];
    EXPECT_EQ(group.dtype, tensor.dtype);
    EXPECT_EQ(group.trainability, tensor.trainability);
    EXPECT_EQ(group.data_parallel_degree, tensor.data_parallel_degree);
    EXPECT_EQ(place.offset % kTensorAlignmentElements, 0);
    int64_t& group_end = end[static_cast<size_t>(place.group)];
    EXPECT_EQ(place.offset, RoundUp(group_end, kTensorAlignmentElements));
    EXPECT_EQ(place.elements, ElementsOf(tensor));
    group_end = place.offset + place.elements;
  }
}

TEST(ChunkLayoutTest, RandomLayoutsKeepEveryPromise) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    const std::vector<TensorSpec> tensors = RandomTensors(dice);
    const int64_t chunk_elements = kGranule * (1 + dice.Below(4));
    const auto layout = ChunkLayout::Create(tensors, {}, BF16Options(chunk_elements));
    ASSERT_THAT(layout, IsOk());
    CheckSlices(*layout);
    CheckGroups(*layout);
    CheckPlacements(*layout);
    if (HasFailure()) return;
  }
}

TEST(ChunkLayoutTest, OffsetsDoNotDependOnTheChunkSize) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    const std::vector<TensorSpec> tensors = RandomTensors(dice);
    const auto small = ChunkLayout::Create(tensors, {}, BF16Options(kGranule));
    const auto large = ChunkLayout::Create(tensors, {}, BF16Options(kGranule * 7));
    ASSERT_THAT(small, IsOk());
    ASSERT_THAT(large, IsOk());
    for (int64_t t = 0; t < small->tensor_count(); ++t) {
      const TensorPlacement& a = small->placement(TensorId(t));
      const TensorPlacement& b = large->placement(TensorId(t));
      EXPECT_EQ(a.group, b.group);
      EXPECT_EQ(a.offset, b.offset);
    }
  }
}

TEST(ChunkLayoutTest, MeasureGroupsAgreesWithCreate) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    const std::vector<TensorSpec> tensors = RandomTensors(dice);
    const auto extents = MeasureGroups(tensors);
    const auto layout = ChunkLayout::Create(tensors, {}, BF16Options(kGranule));
    ASSERT_THAT(extents, IsOk());
    ASSERT_THAT(layout, IsOk());
    ASSERT_EQ(extents->size(), layout->groups().size());
    for (size_t g = 0; g < extents->size(); ++g) {
      const GroupExtent& extent = (*extents)[g];
      const ChunkGroup& group = layout->groups()[g];
      EXPECT_EQ(extent.dtype, group.dtype);
      EXPECT_EQ(extent.trainability, group.trainability);
      EXPECT_EQ(extent.data_parallel_degree, group.data_parallel_degree);
      EXPECT_EQ(extent.used_elements, group.used_elements);
      int64_t end = 0;
      int64_t largest = 0;
      for (int64_t t = 0; t < layout->tensor_count(); ++t) {
        const TensorPlacement& place = layout->placement(TensorId(t));
        if (place.group != static_cast<int64_t>(g)) continue;
        end = std::max(end, place.offset + place.elements);
        largest = std::max(largest, place.elements);
      }
      EXPECT_EQ(extent.elements, end);
      EXPECT_EQ(extent.largest_tensor_elements, largest);
    }
  }
}

TEST(ChunkLayoutTest, ATensorRunsAcrossChunkBorders) {
  const auto layout =
      ChunkLayout::Create({Tensor("a", {100}), Tensor("b", {3 * kGranule}), Tensor("c", {})}, {},
                          BF16Options(kGranule));
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->chunk_count(), 4);
  EXPECT_EQ(layout->slot_bytes(), Bytes(2 * kGranule));
  EXPECT_EQ(layout->placement(TensorId(1)).offset, 128);
  EXPECT_EQ(layout->ChunksOf(TensorId(1)).first, ChunkId(0));
  EXPECT_EQ(layout->ChunksOf(TensorId(1)).last, ChunkId(3));
  const auto first = layout->SlicesIn(ChunkId(0));
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[1].chunk_begin, 128);
  EXPECT_EQ(first[1].elements, kGranule - 128);
  const auto last = layout->SlicesIn(ChunkId(3));
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[0].tensor_begin, 3 * kGranule - 128);
  EXPECT_EQ(last[0].elements, 128);
  EXPECT_EQ(last[1].tensor, TensorId(2));
  EXPECT_EQ(last[1].elements, 1);
}

TEST(ChunkLayoutTest, SizesAroundOneChunk) {
  for (const auto& [elements, chunks] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {kGranule - 1, 1}, {kGranule, 1}, {kGranule + 1, 2}, {2 * kGranule, 2}}) {
    const auto layout = ChunkLayout::Create({Tensor("t", {elements})}, {}, BF16Options(kGranule));
    ASSERT_THAT(layout, IsOk());
    EXPECT_EQ(layout->chunk_count(), chunks) << elements;
    EXPECT_EQ(layout->ChunksOf(TensorId(0)).last, ChunkId(chunks - 1)) << elements;
  }
}

TEST(ChunkLayoutTest, DegreeRoundsTheChunkCountUp) {
  TensorSpec tensor = Tensor("t", {kGranule + 1});
  tensor.data_parallel_degree = 4;
  const auto layout = ChunkLayout::Create({tensor}, {}, BF16Options(kGranule));
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->chunk_count(), 4);
  EXPECT_EQ(layout->SlicesIn(ChunkId(1)).size(), 1u);
  EXPECT_TRUE(layout->SlicesIn(ChunkId(2)).empty());
  EXPECT_TRUE(layout->SlicesIn(ChunkId(3)).empty());
}

TEST(ChunkLayoutTest, NoTensorsMakeNoChunks) {
  const auto layout = ChunkLayout::Create({}, {}, BF16Options(kGranule));
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->chunk_count(), 0);
  EXPECT_EQ(layout->padding_fraction(), 0.0);
  EXPECT_EQ(layout->used_elements(), 0);
  EXPECT_EQ(layout->total_slots(StateKind::kParameter), 0);
}

struct KindCase {
  DType dtype;
  Trainability trainability;
  DType gradient_dtype;
  std::array<int64_t, kStateKindCount> slots;  // by kind; 0 = no such block
};

TEST(ChunkLayoutTest, BlocksAndSlotsByGroup) {
  using enum DType;
  using enum Trainability;
  for (const KindCase& c : std::vector<KindCase>{{kBF16, kTrainable, kBF16, {1, 1, 2, 2, 2}},
                                                 {kBF16, kTrainable, kF32, {1, 2, 2, 2, 2}},
                                                 {kF16, kTrainable, kBF16, {1, 1, 2, 2, 2}},
                                                 {kF16, kTrainable, kF16, {1, 1, 2, 2, 2}},
                                                 {kF32, kTrainable, kBF16, {2, 2, 0, 2, 2}},
                                                 {kF32, kTrainable, kF32, {2, 2, 0, 2, 2}},
                                                 {kBF16, kFrozen, kBF16, {1, 0, 0, 0, 0}},
                                                 {kF32, kFrozen, kF32, {2, 0, 0, 0, 0}}}) {
    SCOPED_TRACE(StrCat(c.dtype, " with ", c.gradient_dtype, " gradients"));
    TensorSpec tensor = Tensor("t", {3 * kGranule}, c.dtype);
    tensor.trainability = c.trainability;
    const auto layout = ChunkLayout::Create(
        {tensor}, {}, {.chunk_elements = kGranule, .gradient_dtype = c.gradient_dtype});
    ASSERT_THAT(layout, IsOk());
    for (int k = 0; k < kStateKindCount; ++k) {
      const BlockId block{static_cast<StateKind>(k), ChunkId(1)};
      const int64_t slots = c.slots[static_cast<size_t>(k)];
      EXPECT_EQ(layout->HasBlock(block), slots > 0) << block;
      EXPECT_EQ(layout->total_slots(block.kind), 3 * slots) << block;
      if (slots == 0) continue;
      EXPECT_EQ(layout->slots_of(block), slots) << block;
      EXPECT_EQ(SizeOf(layout->dtype_of(block)), 2 * slots) << block;
    }
    EXPECT_EQ(layout->dtype_of({StateKind::kParameter, ChunkId(0)}), c.dtype);
  }
}

struct FormatCase {
  OptimizerKind optimizer;
  StateFormat format;
  DType dtype;
  std::array<int64_t, kStateKindCount> slots;  // by kind; 0 = no such block
};

TEST(ChunkLayoutTest, BlocksAndSlotsByOptimizerAndFormat) {
  using enum DType;
  using enum OptimizerKind;
  using Format = StateFormat;
  for (const FormatCase& c :
       std::vector<FormatCase>{{kAdam, Format::kF32, kBF16, {1, 1, 2, 2, 2}},
                               {kSgd, Format::kF32, kBF16, {1, 1, 2, 2, 0}},
                               {kLion, Format::kF32, kF32, {2, 2, 0, 2, 0}},
                               {kAdamW, Format::kSplitMaster, kBF16, {1, 1, 1, 2, 2}},
                               {kAdam, Format::kSplitMaster, kF16, {1, 1, 2, 2, 2}},
                               {kAdam, Format::kSplitMaster, kF32, {2, 2, 0, 2, 2}},
                               {kAdamW, Format::kEightBit, kBF16, {1, 1, 2, 1, 0}},
                               {kAdamW, Format::kEightBit, kF32, {2, 2, 0, 1, 0}},
                               {kLion, Format::kEightBit, kF16, {1, 1, 2, 1, 0}}}) {
    SCOPED_TRACE(StrCat(Name(c.optimizer), " in ", Name(c.format), " of ", c.dtype));
    TensorSpec frozen = Tensor("frozen", {kGranule}, c.dtype);
    frozen.trainability = Trainability::kFrozen;
    const auto layout = ChunkLayout::Create({Tensor("t", {3 * kGranule}, c.dtype), frozen}, {},
                                            {.chunk_elements = kGranule,
                                             .gradient_dtype = DType::kBF16,
                                             .optimizer = c.optimizer,
                                             .state_format = c.format});
    ASSERT_THAT(layout, IsOk());
    EXPECT_EQ(layout->optimizer(), c.optimizer);
    EXPECT_EQ(layout->state_format(), c.format);
    for (int k = 0; k < kStateKindCount; ++k) {
      const BlockId block{static_cast<StateKind>(k), ChunkId(1)};
      const int64_t slots = c.slots[static_cast<size_t>(k)];
      EXPECT_EQ(layout->HasBlock(block), slots > 0) << block;
      if (slots > 0) {
        EXPECT_EQ(layout->element_bytes(block), 2 * slots) << block;
        EXPECT_EQ(layout->slots_of(block), slots) << block;
      }
      const bool of_frozen = block.kind == StateKind::kParameter;
      EXPECT_EQ(layout->total_slots(block.kind), (of_frozen ? 4 : 3) * slots) << block;
      EXPECT_EQ(layout->HasBlock({block.kind, ChunkId(3)}), of_frozen);
    }
    const bool split = c.format == Format::kSplitMaster && c.dtype == kBF16;
    EXPECT_EQ(layout->SplitsMaster(ChunkId(0)), split);
    EXPECT_EQ(layout->UpdateReadsParameter(ChunkId(0)), split || c.dtype == kF32);
    EXPECT_EQ(layout->HasEightBitMoments(ChunkId(0)), c.format == Format::kEightBit);
    const OptimizerStates states = StatesOf(c.optimizer);
    const bool has[] = {true, false, true, states.momentum, states.variance};
    for (int k = 0; k < kStateKindCount; ++k) {
      const auto kind = static_cast<StateKind>(k);
      EXPECT_EQ(layout->HasState(kind, TensorId(0)), has[k]) << Name(kind);
      EXPECT_EQ(layout->HasState(kind, TensorId(1)), k == 0) << Name(kind);
    }
    EXPECT_FALSE(layout->SplitsMaster(ChunkId(3)));
    EXPECT_FALSE(layout->UpdateReadsParameter(ChunkId(3)));
    EXPECT_FALSE(layout->HasEightBitMoments(ChunkId(3)));
    if (split) {
      EXPECT_DEATH(layout->dtype_of({StateKind::kMaster, ChunkId(0)}), "holds no floats");
    }
    if (c.format == Format::kEightBit) {
      EXPECT_DEATH(layout->dtype_of({StateKind::kMomentum, ChunkId(0)}), "holds no floats");
    }
  }
}

TEST(ChunkLayoutTest, StatesThatNoChunkCanHoldAreRefused) {
  const auto create = [](OptimizerKind optimizer, StateFormat format) {
    return ChunkLayout::Create({Tensor("t", {10})}, {},
                               {.chunk_elements = kGranule,
                                .gradient_dtype = DType::kBF16,
                                .optimizer = optimizer,
                                .state_format = format})
        .status();
  };
  EXPECT_THAT(create(OptimizerKind::kAdamW, StateFormat::kSplitMaster), IsOk());
  EXPECT_THAT(create(OptimizerKind::kSgd, StateFormat::kSplitMaster),
              StatusIs(absl::StatusCode::kInvalidArgument, "variance"));
  EXPECT_THAT(create(OptimizerKind::kAdafactor, StateFormat::kF32), IsOk());
  EXPECT_THAT(create(OptimizerKind::kAdafactor, StateFormat::kEightBit),
              StatusIs(absl::StatusCode::kInvalidArgument, "adafactor"));
}

TEST(ChunkLayoutTest, AFactoredVarianceIsAStateWithoutBlocks) {
  const auto layout = ChunkLayout::Create({Tensor("matrix", {10, 20}), Tensor("vector", {30})}, {},
                                          {.chunk_elements = kGranule,
                                           .gradient_dtype = DType::kBF16,
                                           .optimizer = OptimizerKind::kAdafactor});
  ASSERT_THAT(layout, IsOk());
  for (const StateKind kind : {StateKind::kMomentum, StateKind::kVariance}) {
    EXPECT_FALSE(layout->HasBlock({kind, ChunkId(0)}));
  }
  EXPECT_FALSE(layout->HasState(StateKind::kMomentum, TensorId(0)));
  EXPECT_TRUE(layout->HasState(StateKind::kVariance, TensorId(0)));
  EXPECT_EQ(layout->StateElements(StateKind::kVariance, TensorId(0)), 10 + 20);
  EXPECT_EQ(layout->StateElements(StateKind::kMaster, TensorId(0)), 10 * 20);
  EXPECT_EQ(layout->StateElements(StateKind::kVariance, TensorId(1)), 30);
}

TEST(ChunkLayoutTest, GroupsFollowTheirFirstTensor) {
  TensorSpec frozen = Tensor("frozen", {10});
  frozen.trainability = Trainability::kFrozen;
  const auto layout = ChunkLayout::Create(
      {Tensor("a", {10}), frozen, Tensor("b", {10}), Tensor("c", {10}, DType::kF32)}, {},
      BF16Options(kGranule));
  ASSERT_THAT(layout, IsOk());
  ASSERT_EQ(layout->groups().size(), 3u);
  EXPECT_EQ(layout->placement(TensorId(0)).group, 0);
  EXPECT_EQ(layout->placement(TensorId(1)).group, 1);
  EXPECT_EQ(layout->placement(TensorId(2)).group, 0);
  EXPECT_EQ(layout->placement(TensorId(2)).offset, 64);
  EXPECT_EQ(layout->placement(TensorId(3)).group, 2);
}

TEST(ChunkLayoutTest, FindsByNameAndAlias) {
  const auto layout =
      ChunkLayout::Create({Tensor("embed", {8, 8}), Tensor("norm", {8})},
                          Aliases{{"head", "embed"}, {"output", "head"}}, BF16Options(kGranule));
  ASSERT_THAT(layout, IsOk());
  EXPECT_THAT(layout->Find("embed"), IsOkAndHolds(TensorId(0)));
  EXPECT_THAT(layout->Find("norm"), IsOkAndHolds(TensorId(1)));
  EXPECT_THAT(layout->Find("head"), IsOkAndHolds(TensorId(0)));
  EXPECT_THAT(layout->Find("output"), IsOkAndHolds(TensorId(0)));
}

TEST(ChunkLayoutTest, FindSuggestsTheNearestName) {
  const auto layout =
      ChunkLayout::Create({Tensor("model.embed", {8}), Tensor("model.norm", {8})},
                          Aliases{{"lm_head", "model.embed"}}, BF16Options(kGranule));
  ASSERT_THAT(layout, IsOk());
  using absl::StatusCode;
  EXPECT_THAT(layout->Find("model.nrom"), StatusIs(StatusCode::kNotFound, "'model.norm'"));
  EXPECT_THAT(layout->Find("lm_haed"), StatusIs(StatusCode::kNotFound, "'lm_head'"));
  EXPECT_THAT(layout->Find("something else entirely"),
              StatusIs(StatusCode::kNotFound, "no tensor is named 'something else entirely'"));
  EXPECT_THAT(layout->Find(""), StatusIs(StatusCode::kNotFound));
}

class ChunkLayoutErrorTest : public ::testing::Test {
 protected:
  static void ExpectInvalid(std::vector<TensorSpec> tensors, const Aliases& aliases,
                            ChunkLayout::Options options,
                            const ::testing::Matcher<const std::string&>& message) {
    EXPECT_THAT(ChunkLayout::Create(std::move(tensors), aliases, options),
                StatusIs(absl::StatusCode::kInvalidArgument, message));
  }
};

TEST_F(ChunkLayoutErrorTest, Names) {
  const auto options = BF16Options(kGranule);
  ExpectInvalid({Tensor("a", {1}), Tensor("", {1})}, {}, options,
                HasSubstr("tensor 1 has an empty name"));
  ExpectInvalid({Tensor("a", {1}), Tensor("a", {2})}, {}, options,
                HasSubstr("two tensors are named 'a'"));
  ExpectInvalid({Tensor("a", {1})}, {{"", "a"}}, options, HasSubstr("empty name"));
  ExpectInvalid({Tensor("a", {1})}, {{"a", "a"}}, options, HasSubstr("already a name"));
  ExpectInvalid({Tensor("a", {1}), Tensor("b", {1})}, {{"c", "a"}, {"c", "b"}}, options,
                HasSubstr("alias 'c' of 'b' is already a name"));
  ExpectInvalid({Tensor("embed", {1})}, {{"head", "embde"}}, options,
                AllOf(HasSubstr("alias 'head'"), HasSubstr("did you mean 'embed'")));
  // An alias may name earlier aliases only.
  ExpectInvalid({Tensor("a", {1})}, {{"x", "later"}, {"later", "a"}}, options,
                HasSubstr("alias 'x'"));
}

TEST_F(ChunkLayoutErrorTest, Shapes) {
  const auto options = BF16Options(kGranule);
  ExpectInvalid({Tensor("a", {4, 0})}, {}, options,
                AllOf(HasSubstr("'a'"), HasSubstr("extent of 0")));
  ExpectInvalid({Tensor("a", {-1})}, {}, options, HasSubstr("extent of -1"));
  ExpectInvalid({Tensor("a", {int64_t{1} << 32, int64_t{1} << 32})}, {}, options,
                HasSubstr("'a' has more than"));
  ExpectInvalid({Tensor("a", {kModelElementsMax + 1})}, {}, options, HasSubstr("more than"));
  ExpectInvalid({Tensor("a", {std::numeric_limits<int64_t>::max()})}, {}, options,
                HasSubstr("more than"));
  // Each below the limit, together above it, also in groups of their own.
  ExpectInvalid({Tensor("a", {kModelElementsMax}), Tensor("b", {1})}, {}, options,
                HasSubstr("'b' brings the model to"));
  ExpectInvalid({Tensor("a", {kModelElementsMax}), Tensor("b", {1}, DType::kF32)}, {}, options,
                HasSubstr("'b' brings the model to"));
}

TEST_F(ChunkLayoutErrorTest, Degrees) {
  TensorSpec tensor = Tensor("a", {1});
  for (const int64_t degree :
       {int64_t{0}, int64_t{-3}, kChunkCountMax + 1, std::numeric_limits<int64_t>::max()}) {
    tensor.data_parallel_degree = degree;
    ExpectInvalid({tensor}, {}, BF16Options(kGranule), HasSubstr(StrCat("degree of ", degree)));
  }
}

TEST_F(ChunkLayoutErrorTest, ChunkSizesAndGradients) {
  for (const int64_t elements :
       {int64_t{0}, -kGranule, int64_t{1}, kGranule - 1, kGranule + 1, kChunkElementsMax + kGranule,
        std::numeric_limits<int64_t>::max()}) {
    ExpectInvalid({Tensor("a", {1})}, {}, BF16Options(elements),
                  HasSubstr(StrCat("a chunk of ", elements, " elements")));
  }
}

TEST_F(ChunkLayoutErrorTest, TooManyChunks) {
  ExpectInvalid({Tensor("a", {kChunkCountMax, kGranule}), Tensor("b", {1})}, {},
                BF16Options(kGranule), HasSubstr("more than 16777216 chunks"));
  TensorSpec wide = Tensor("c", {1}, DType::kF32);
  wide.data_parallel_degree = kChunkCountMax;
  ExpectInvalid({Tensor("a", {1}), wide}, {}, BF16Options(kGranule), HasSubstr("chunks"));
}

TEST(ChunkLayoutDeathTest, ProgrammerErrorsAbort) {
  TensorSpec frozen = Tensor("f", {10});
  frozen.trainability = Trainability::kFrozen;
  const auto layout = ChunkLayout::Create({frozen}, {}, BF16Options(kGranule));
  ASSERT_THAT(layout, IsOk());
  EXPECT_DEATH(layout->group_of(ChunkId(1)), "chunk#1 of 1");
  EXPECT_DEATH(layout->SlicesIn(ChunkId(-1)), "chunk#-1 of 1");
  EXPECT_DEATH(layout->ChunksOf(TensorId(1)), "tensor#1 of 1");
  EXPECT_DEATH(layout->slots_of({StateKind::kGradient, ChunkId(0)}), "gradient of chunk#0");
}

}  // namespace
}  // namespace gantry
