#include "trainer/data/permutation.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gantry {
namespace {

std::vector<int64_t> Order(uint64_t seed, uint64_t stream, int64_t count) {
  const Permutation permutation({.seed = seed, .stream = stream, .count = count});
  std::vector<int64_t> order;
  for (int64_t i = 0; i < count; ++i) order.push_back(permutation.At(i));
  return order;
}

TEST(Permutation, GivesEveryNumberOnce) {
  for (int64_t count = 1; count <= 300; ++count) {
    std::vector<int> seen(static_cast<size_t>(count), 0);
    for (const int64_t number : Order(7, 3, count)) {
      ASSERT_GE(number, 0);
      ASSERT_LT(number, count);
      ++seen[static_cast<size_t>(number)];
    }
    for (const int times : seen) ASSERT_EQ(times, 1) << count;
  }
}

TEST(Permutation, DependsOnSeedAndStreamOnly) {
  EXPECT_EQ(Order(1, 2, 1000), Order(1, 2, 1000));
  EXPECT_NE(Order(1, 2, 1000), Order(2, 2, 1000));
  EXPECT_NE(Order(1, 2, 1000), Order(1, 3, 1000));
}

// Over many seeds each number comes to each place about equally often: of 6,000 draws of 6 numbers
// 1,000 are expected, with a standard deviation of 29.
TEST(Permutation, IsEven) {
  std::vector<int> counts(36, 0);
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    const std::vector<int64_t> order = Order(seed, 0, 6);
    for (size_t place = 0; place < 6; ++place) {
      ++counts[place * 6 + static_cast<size_t>(order[place])];
    }
  }
  for (const int count : counts) {
    EXPECT_GT(count, 1000 - 6 * 29);
    EXPECT_LT(count, 1000 + 6 * 29);
  }
}

TEST(Permutation, ReachesTheLargestCounts) {
  const Permutation permutation({.seed = 1, .stream = 0, .count = int64_t{1} << 62});
  EXPECT_NE(permutation.At(0), permutation.At((int64_t{1} << 62) - 1));
}

TEST(PermutationDeathTest, ChecksItsRange) {
  EXPECT_DEATH(Permutation({.seed = 1, .stream = 1, .count = 0}), "count");
  EXPECT_DEATH(Permutation({.seed = 1, .stream = 1, .count = 5}).At(5), "5 of 5");
}

}  // namespace
}  // namespace gantry
