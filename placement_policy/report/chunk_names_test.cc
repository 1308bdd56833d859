#include "placement_policy/report/chunk_names.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/model_structure.h"
#include "placement_policy/report/step_report.h"
#include "placement_policy/synthetic_layout.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST(ChunkNamesTest, AChunkNamesTheTensorsThatLieInIt) {
  const absl::StatusOr<ModelShape> shape = BuiltInModel("llama2-7b");
  ASSERT_THAT(shape, IsOk());
  const ModelStructure structure = StructureOf(*shape);
  const absl::StatusOr<SyntheticLayout> layout =
      SyntheticLayout::Create(structure, {.lora_rank = 8});
  ASSERT_THAT(layout, IsOk());
  const std::vector<std::string> names =
      SyntheticChunkNames(*shape, layout->chunk_elements(), layout->chunk_count());
  ASSERT_THAT(names, SizeIs(layout->chunk_count()));
  for (int64_t chunk = 0; chunk < layout->chunk_count(); ++chunk) {
    EXPECT_EQ(names[static_cast<size_t>(chunk)] == "adapters", layout->IsAdapter(chunk)) << chunk;
  }
  // The last tensor of the model lies where the layout has its operator, the head.
  const std::vector<OperatorTile> head(layout->TilesOf(std::ssize(structure.operators) - 1).begin(),
                                       layout->TilesOf(std::ssize(structure.operators) - 1).end());
  for (int64_t chunk = head.front().chunks.first + 1; chunk <= head.back().chunks.last; ++chunk) {
    EXPECT_EQ(names[static_cast<size_t>(chunk)], structure.tensors.back().name);
  }
  EXPECT_THAT(names[0], StartsWith(structure.tensors.front().name));
}

TEST(ChunkNamesTest, ManyAndLongNamesAreCut) {
  EXPECT_EQ(JoinTensorNames({}), "");
  EXPECT_EQ(JoinTensorNames({"a"}), "a");
  EXPECT_EQ(JoinTensorNames({"a", "b"}), "a, b");
  EXPECT_EQ(JoinTensorNames({"a", "b", "c", "d"}), "a, b and 2 more");
  std::string wide;  // of two bytes each
  for (int i = 0; i < 100; ++i) wide += "µ";
  const std::string cut = JoinTensorNames({wide});
  EXPECT_LT(cut.size(), 80u);
  EXPECT_THAT(cut, HasSubstr("µ…"));
  EXPECT_THAT(cut, Not(HasSubstr("\xc2…")));
}

}  // namespace
}  // namespace gantry
