// Goal: chunks as ChunkLayout would cut them, tiles that cover every operator in one to three
// chunks, and the chunk counts that the research on simulated plans used.
#include "placement_policy/synthetic_layout.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/model_shape.h"

namespace gantry {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int64_t kMebi = int64_t{1} << 20;

ModelShape Model(std::string_view name) {
  const auto shape = BuiltInModel(name);
  EXPECT_THAT(shape, IsOk());
  return shape.ok() ? *shape : ModelShape{};
}

TEST(SyntheticLayoutTest, ChoosesTheChunkCountsOfTheResearch) {
  const struct {
    std::string_view model;
    int64_t elements;
    int64_t chunks;
  } cases[] = {
      {"gpt2", kMebi, 119},
      {"llama2-7b", 16 * kMebi, 402},
      {"mixtral-8x7b", 64 * kMebi, 696},
      {"llama3-70b", 64 * kMebi, 1052},
      {"deepseek-v3", 256 * kMebi, 2500},
  };
  for (const auto& [model, elements, chunks] : cases) {
    const auto layout = SyntheticLayout::Create(StructureOf(Model(model)), {});
    ASSERT_THAT(layout, IsOk());
    EXPECT_EQ(layout->chunk_elements(), elements) << model;
    EXPECT_EQ(layout->chunk_count(), chunks) << model;
  }
}

TEST(SyntheticLayoutTest, ChosenSizesStayInTheirBounds) {
  for (int64_t elements = 1; elements < int64_t{1} << 50; elements += elements / 3 + 1) {
    const int64_t size = ChooseSyntheticChunkElements(elements);
    const int64_t count = CeilDiv(elements, size);
    SCOPED_TRACE(elements);
    EXPECT_EQ(size % kSyntheticChunkGranularity, 0);
    EXPECT_LE(count, 3000);
    if (elements >= 300 * 4 * kMebi) {
      EXPECT_GE(count, 300);
      EXPECT_GE(size, 4 * kMebi);
    } else if (elements > 100 * kSyntheticChunkGranularity) {
      EXPECT_GE(count, 100);
    } else {
      EXPECT_EQ(size, kSyntheticChunkGranularity);
    }
  }
}

TEST(SyntheticLayoutTest, TilesCoverEveryOperatorInOneToThreeChunks) {
  for (const std::string_view name : BuiltInModelNames()) {
    for (const int64_t chunk_elements : {int64_t{0}, 4 * kMebi + kSyntheticChunkGranularity}) {
      SCOPED_TRACE(std::string(name));
      const ModelStructure structure = StructureOf(Model(name));
      const auto layout =
          SyntheticLayout::Create(structure, {.chunk_elements = chunk_elements, .lora_rank = 16});
      ASSERT_THAT(layout, IsOk());
      int64_t begin = 0;  // of the tensors, in elements
      std::vector<int64_t> begins;
      for (const TensorShape& tensor : structure.tensors) {
        begin = RoundUp(begin, kSyntheticTensorAlignment);
        begins.push_back(begin);
        begin += tensor.elements();
      }
      for (size_t i = 0; i < structure.operators.size(); ++i) {
        const ModelOperator& op = structure.operators[i];
        const auto tiles = layout->TilesOf(static_cast<int64_t>(i));
        double share = 0.0;
        for (const OperatorTile& tile : tiles) share += tile.share;
        EXPECT_NEAR(share, 1.0, 1e-9);
        if (op.tensor_count == 0) {
          ASSERT_EQ(tiles.size(), 1);
          EXPECT_LT(tiles[0].chunks.last, tiles[0].chunks.first);
          continue;
        }
        const auto last = static_cast<size_t>(op.first_tensor + op.tensor_count - 1);
        const int64_t end = begins[last] + structure.tensors[last].elements();
        EXPECT_EQ(tiles.front().chunks.first,
                  begins[static_cast<size_t>(op.first_tensor)] / layout->chunk_elements());
        EXPECT_EQ(tiles.back().chunks.last, (end - 1) / layout->chunk_elements());
        for (size_t t = 0; t < tiles.size(); ++t) {
          const ChunkSpan& chunks = tiles[t].chunks;
          EXPECT_GE(chunks.last, chunks.first);
          EXPECT_LE(chunks.last, chunks.first + 2);
          EXPECT_FALSE(layout->IsAdapter(chunks.last));
          if (t == 0) continue;
          EXPECT_GE(chunks.first, tiles[t - 1].chunks.last);
          EXPECT_LE(chunks.first, tiles[t - 1].chunks.last + 1);
        }
      }
    }
  }
}

TEST(SyntheticLayoutTest, EveryTensorBeginsAligned) {
  // 9 tensors a layer and 3 others, each smaller than the alignment.
  const ModelShape shape = {.layers = 1000,
                            .width = 1,
                            .heads = 1,
                            .kv_heads = 1,
                            .head_dim = 1,
                            .ffn_width = 1,
                            .vocabulary = 1};
  const auto layout =
      SyntheticLayout::Create(StructureOf(shape), {.chunk_elements = kSyntheticChunkGranularity});
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->chunk_count(), CeilDiv(9003 * 64 - 63, kSyntheticChunkGranularity));
}

TEST(SyntheticLayoutTest, AdaptersHaveChunksOfTheirOwn) {
  const ModelStructure structure = StructureOf(Model("llama3-8b"));
  const auto without = SyntheticLayout::Create(structure, {.chunk_elements = 16 * kMebi});
  const auto with =
      SyntheticLayout::Create(structure, {.chunk_elements = 16 * kMebi, .lora_rank = 64});
  ASSERT_THAT(without, IsOk());
  ASSERT_THAT(with, IsOk());
  // Seven matrices a layer, [rank, in] and [out, rank] each.
  const int64_t per_layer = 64 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336));
  int64_t elements = 0;
  for (size_t i = 0; i < structure.operators.size(); ++i) {
    elements += with->AdapterElementsOf(static_cast<int64_t>(i));
    EXPECT_EQ(without->AdapterElementsOf(static_cast<int64_t>(i)), 0);
  }
  EXPECT_EQ(elements, 32 * per_layer);
  EXPECT_EQ(with->chunk_count(), without->chunk_count() + CeilDiv(elements, 16 * kMebi));
  EXPECT_FALSE(with->IsAdapter(without->chunk_count() - 1));
  EXPECT_TRUE(with->IsAdapter(without->chunk_count()));
  EXPECT_FALSE(without->IsAdapter(without->chunk_count() - 1));
}

TEST(SyntheticLayoutTest, RefusesBadOptionsByName) {
  const ModelStructure structure = StructureOf(Model("llama3-8b"));
  for (const int64_t size :
       {int64_t{-1}, int64_t{1}, kSyntheticChunkGranularity - 1, kSyntheticChunkGranularity + 1,
        kSyntheticChunkElementsMax + kSyntheticChunkGranularity}) {
    EXPECT_THAT(SyntheticLayout::Create(structure, {.chunk_elements = size}),
                StatusIs(kInvalid, "chunk_elements is " + std::to_string(size) + "; it must be"));
  }
  EXPECT_THAT(SyntheticLayout::Create(structure, {.chunk_elements = kSyntheticChunkElementsMax}),
              IsOk());
  EXPECT_THAT(SyntheticLayout::Create(StructureOf(Model("llama3-70b")), {.chunk_elements = 32768}),
              StatusIs(kInvalid, "more than 1048576 chunks"));
  for (const int64_t rank : {-1, 65537}) {
    EXPECT_THAT(SyntheticLayout::Create(structure, {.lora_rank = rank}),
                StatusIs(kInvalid, "lora_rank is " + std::to_string(rank)));
  }
  EXPECT_THAT(SyntheticLayout::Create(structure, {.lora_rank = 65536}), IsOk());
}

}  // namespace
}  // namespace gantry
