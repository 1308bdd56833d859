#include "device/free_ranges.h"

#include <cstdint>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"

namespace gantry {
namespace {

TEST(FreeRangesTest, TakesTheLowestThatFits) {
  FreeRanges ranges(1024);
  EXPECT_EQ(ranges.Take(256), 0);
  EXPECT_EQ(ranges.Take(1), 256);
  EXPECT_EQ(ranges.Take(512), 512);
  EXPECT_EQ(ranges.Take(1), std::nullopt);
  ranges.Return(512, 512);
  ranges.Return(0, 256);
  EXPECT_EQ(ranges.Take(257), 512);
  EXPECT_EQ(ranges.Take(256), 0);
}

TEST(FreeRangesTest, JoinsNeighbours) {
  FreeRanges ranges(768);
  ASSERT_EQ(ranges.Take(256), 0);
  ASSERT_EQ(ranges.Take(256), 256);
  ASSERT_EQ(ranges.Take(256), 512);
  EXPECT_EQ(ranges.largest(), 0);
  ranges.Return(0, 256);
  ranges.Return(512, 256);
  EXPECT_EQ(ranges.largest(), 256);
  ranges.Return(256, 256);
  EXPECT_EQ(ranges.largest(), 768);
}

TEST(FreeRangesTest, NothingInAnEmptyRange) {
  FreeRanges ranges(0);
  EXPECT_EQ(ranges.Take(1), std::nullopt);
  EXPECT_EQ(ranges.largest(), 0);
}

// Against a table of units.
TEST(FreeRangesTest, RandomCallsAgreeWithATable) {
  constexpr uint64_t kSeed = 11;
  std::cout << "seed " << kSeed << "\n";
  constexpr int64_t kUnits = 40;
  const Random random({.seed = kSeed, .stream = 0});
  FreeRanges ranges(kUnits * FreeRanges::kAlignment);
  std::vector<bool> taken(kUnits, false);
  std::map<int64_t, int64_t> alive;  // offset -> bytes
  for (uint64_t i = 0; i < 4000; ++i) {
    if (random.Below(2, 3 * i) == 0 && !alive.empty()) {
      auto at = alive.begin();
      std::advance(at, random.Below(alive.size(), 3 * i + 1));
      const auto [offset, bytes] = *at;
      for (int64_t unit = offset / 256; unit <= (offset + bytes - 1) / 256; ++unit) {
        taken[static_cast<size_t>(unit)] = false;
      }
      ranges.Return(offset, bytes);
      alive.erase(at);
      continue;
    }
    const auto bytes = static_cast<int64_t>(1 + random.Below(2000, 3 * i + 2));
    const int64_t units = (bytes + 255) / 256;
    int64_t expected = -1;
    for (int64_t first = 0; first + units <= kUnits && expected < 0; ++first) {
      bool free = true;
      for (int64_t u = first; u < first + units; ++u) free &= !taken[static_cast<size_t>(u)];
      if (free) expected = first * 256;
    }
    const std::optional<int64_t> offset = ranges.Take(bytes);
    ASSERT_EQ(offset.value_or(-1), expected) << "call " << i;
    if (!offset.has_value()) continue;
    alive.emplace(*offset, bytes);
    for (int64_t u = *offset / 256; u < *offset / 256 + units; ++u) {
      taken[static_cast<size_t>(u)] = true;
    }
  }
}

}  // namespace
}  // namespace gantry
