#include "chunk/block.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string_view>

#include "base/ids.h"

namespace gantry {
namespace {

TEST(BlockTest, EveryKindHasItsOwnName) {
  std::set<std::string_view> names;
  for (int kind = 0; kind < kStateKindCount; ++kind) {
    names.insert(Name(static_cast<StateKind>(kind)));
  }
  EXPECT_EQ(names.size(), kStateKindCount);
  EXPECT_EQ(Name(StateKind::kParameter), "parameter");
  EXPECT_EQ(Name(StateKind::kVariance), "variance");
}

TEST(BlockTest, PrintsKindAndChunk) {
  std::ostringstream out;
  out << BlockId{StateKind::kMomentum, ChunkId(7)};
  EXPECT_EQ(out.str(), "momentum of chunk#7");
}

TEST(BlockTest, OrdersByKindThenChunk) {
  EXPECT_LT((BlockId{StateKind::kParameter, ChunkId(9)}),
            (BlockId{StateKind::kGradient, ChunkId(0)}));
  EXPECT_LT((BlockId{StateKind::kMaster, ChunkId(1)}), (BlockId{StateKind::kMaster, ChunkId(2)}));
  EXPECT_EQ((BlockId{StateKind::kMaster, ChunkId(1)}), (BlockId{StateKind::kMaster, ChunkId(1)}));
}

TEST(BlockDeathTest, UnknownKindAborts) {
  EXPECT_DEATH(Name(static_cast<StateKind>(kStateKindCount)), "index");
}

}  // namespace
}  // namespace gantry
