#include "trainer/booster/stop_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace gantry {
namespace {

TEST(StopTextTest, WithoutStopsAllComesOutAtOnce) {
  StopText stop({});
  EXPECT_EQ(stop.Push("abc"), "abc");
  EXPECT_EQ(stop.Push(""), "");
  EXPECT_EQ(stop.Finish(), "");
  EXPECT_FALSE(stop.found());
}

TEST(StopTextTest, FindsItAcrossPieces) {
  StopText stop({"</end>"});
  EXPECT_EQ(stop.Push("one <"), "one ");
  EXPECT_EQ(stop.Push("/en"), "");
  EXPECT_EQ(stop.Push("d> two"), "");
  EXPECT_TRUE(stop.found());
  EXPECT_EQ(stop.Push("three"), "");
  EXPECT_EQ(stop.Finish(), "");
}

TEST(StopTextTest, WhatOnlyLookedLikeItComesOut) {
  StopText stop({"aab", "bb"});
  EXPECT_EQ(stop.Push("a"), "");
  EXPECT_EQ(stop.Push("a"), "");
  EXPECT_EQ(stop.Push("a"), "a");
  EXPECT_EQ(stop.Push("cb"), "aac");
  EXPECT_EQ(stop.Finish(), "b");
  EXPECT_FALSE(stop.found());
}

TEST(StopTextTest, TheFirstPlaceCounts) {
  StopText stop({"longer", "x"});
  EXPECT_EQ(stop.Push("a x longer"), "a ");
  EXPECT_TRUE(stop.found());
}

// Whatever the pieces, what comes out is the text up to the first stop.
TEST(StopTextTest, PiecesMakeNoDifference) {
  constexpr uint64_t kSeed = 4;
  SCOPED_TRACE(kSeed);
  const Random random({.seed = kSeed, .stream = 0});
  uint64_t index = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::vector<std::string> stops = {"aba", "bb"};
    std::string text;
    const int64_t length = random.Below(14, index++);
    for (int64_t i = 0; i < length; ++i) text += random.Below(2, index++) == 0 ? 'a' : 'b';
    size_t end = text.size();
    for (const std::string& stop : stops) end = std::min(end, text.find(stop));
    StopText filter(stops);
    std::string out;
    for (std::string_view rest = text; !rest.empty();) {
      const auto size = static_cast<size_t>(1 + random.Below(3, index++));
      out += filter.Push(rest.substr(0, size));
      rest.remove_prefix(std::min(size, rest.size()));
    }
    out += filter.Finish();
    EXPECT_EQ(out, text.substr(0, end)) << text;
    EXPECT_EQ(filter.found(), end < text.size()) << text;
  }
}

}  // namespace
}  // namespace gantry
