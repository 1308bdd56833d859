// The tree against a plain array on random operations, and its edges.
#include "placement_policy/slot_profile.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/strings.h"
#include "gtest/gtest.h"

namespace gantry {
namespace {

// What SlotProfile promises, written down.
class NaiveProfile {
 public:
  explicit NaiveProfile(std::vector<int64_t> slack) : slack_(std::move(slack)) {}
  int64_t Min(int64_t begin, int64_t end) const {
    int64_t least = At(begin);
    for (int64_t t = begin; t < end; ++t) least = std::min(least, At(t));
    return least;
  }
  void Add(int64_t begin, int64_t end, int64_t slots) {
    for (int64_t t = begin; t < end; ++t) At(t) += slots;
  }
  void Set(int64_t position, int64_t slack) { At(position) = slack; }

 private:
  int64_t& At(int64_t t) { return slack_[static_cast<size_t>(t) % slack_.size()]; }
  int64_t At(int64_t t) const { return slack_[static_cast<size_t>(t) % slack_.size()]; }
  std::vector<int64_t> slack_;
};

TEST(SlotProfileTest, OneMoment) {
  const std::vector<int64_t> slack = {5};
  SlotProfile profile(slack);
  EXPECT_EQ(profile.size(), 1);
  EXPECT_EQ(profile.Min(0, 1), 5);
  EXPECT_EQ(profile.Min(41, 42), 5);
  profile.Add(7, 8, -3);
  EXPECT_EQ(profile.Min(0, 1), 2);
  profile.Set(0, 9);
  EXPECT_EQ(profile.Min(3, 4), 9);
}

TEST(SlotProfileTest, RangesWrap) {
  const std::vector<int64_t> slack = {4, 1, 3};
  SlotProfile profile(slack);
  EXPECT_EQ(profile.Min(2, 4), 3);  // the last and the first
  EXPECT_EQ(profile.Min(2, 5), 1);  // a whole turn
  profile.Add(5, 7, -2);            // the last and the first
  EXPECT_EQ(profile.Min(0, 1), 2);
  EXPECT_EQ(profile.Min(1, 2), 1);
  EXPECT_EQ(profile.Min(2, 3), 1);
}

TEST(SlotProfileTest, IsTheArrayItStandsFor) {
  for (int64_t size = 1; size <= 70; ++size) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(StrCat("size ", size, ", seed ", seed));
      const Random random({.seed = seed, .stream = static_cast<uint64_t>(size)});
      uint64_t draws = 0;
      const auto draw = [&](int64_t bound) {
        return static_cast<int64_t>(random.Uniform(draws++) * static_cast<double>(bound));
      };
      std::vector<int64_t> slack;
      for (int64_t i = 0; i < size; ++i) slack.push_back(draw(20) - 5);
      SlotProfile profile(slack);
      NaiveProfile naive(slack);
      for (int i = 0; i < 300; ++i) {
        const int64_t begin = draw(5 * size);
        const int64_t end = begin + 1 + draw(size);
        switch (draw(3)) {
          case 0: {
            const int64_t slots = draw(9) - 4;
            profile.Add(begin, end, slots);
            naive.Add(begin, end, slots);
            break;
          }
          case 1:
            profile.Set(begin % size, draw(20) - 5);
            naive.Set(begin % size, profile.Min(begin, begin + 1));
            break;
          default:
            break;
        }
        ASSERT_EQ(profile.Min(begin, end), naive.Min(begin, end)) << begin << " to " << end;
      }
    }
  }
}

}  // namespace
}  // namespace gantry
