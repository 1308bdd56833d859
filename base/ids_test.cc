#include "base/ids.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <sstream>
#include <type_traits>
#include <unordered_set>

#include "absl/container/flat_hash_set.h"

namespace gantry {
namespace {

static_assert(!std::is_default_constructible_v<ChunkId>);
static_assert(!std::is_convertible_v<int64_t, ChunkId>);
static_assert(!std::is_convertible_v<ChunkId, int64_t>);
static_assert(!std::is_constructible_v<ChunkId, TensorId>);
static_assert(!std::is_same_v<ChunkId, SlotId>);
static_assert(sizeof(ChunkId) == sizeof(int64_t));
static_assert(std::is_trivially_copyable_v<ChunkId>);
static_assert(ChunkId(3).value() == 3);

TEST(IdsTest, OrdersByValue) {
  EXPECT_EQ(ChunkId(3), ChunkId(3));
  EXPECT_NE(ChunkId(3), ChunkId(4));
  EXPECT_LT(ChunkId(-1), ChunkId(0));
  EXPECT_GE(ChunkId(4), ChunkId(3));
  const std::map<ChunkId, int> map = {{ChunkId(2), 20}, {ChunkId(1), 10}};
  EXPECT_EQ(map.begin()->first, ChunkId(1));
}

TEST(IdsTest, PrintsItsPrefix) {
  std::ostringstream out;
  out << ChunkId(7) << " " << Rank(0) << " " << Step(-2);
  EXPECT_EQ(out.str(), "chunk#7 rank#0 step#-2");
  EXPECT_EQ(TensorId(12).ToString(), "tensor#12");
  EXPECT_EQ(DeviceId(1).ToString(), "device#1");
  EXPECT_EQ(SlotId(1).ToString(), "slot#1");
  EXPECT_EQ(StreamId(1).ToString(), "stream#1");
}

TEST(IdsTest, HashesInStandardAndAbslSets) {
  const std::unordered_set<ChunkId> standard = {ChunkId(1), ChunkId(2), ChunkId(1)};
  EXPECT_EQ(standard.size(), 2u);
  EXPECT_TRUE(standard.contains(ChunkId(2)));
  const absl::flat_hash_set<ChunkId> absl_set = {ChunkId(1), ChunkId(2), ChunkId(1)};
  EXPECT_EQ(absl_set.size(), 2u);
  EXPECT_TRUE(absl_set.contains(ChunkId(2)));
  EXPECT_FALSE(absl_set.contains(ChunkId(3)));
}

}  // namespace
}  // namespace gantry
