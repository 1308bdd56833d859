#include "trainer/data/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PackDocuments, PutsTheLongestFirstWhereTheyFit) {
  const std::vector<int32_t> lengths = {3, 7, 5, 2, 10, 1};
  const PackingPlan plan = PackDocuments(lengths, 10);
  // 10 | 7 3 | 5 2 1
  EXPECT_THAT(plan.order, ElementsAre(4, 1, 0, 2, 3, 5));
  EXPECT_THAT(plan.begins, ElementsAre(0, 1, 3, 6));
}

TEST(PackDocuments, HandlesTheSmallestCases) {
  EXPECT_EQ(PackDocuments({}, 4).sequences(), 0);
  EXPECT_THAT(PackDocuments({}, 4).order, IsEmpty());
  const std::vector<int32_t> full = {4, 4};
  EXPECT_THAT(PackDocuments(full, 4).begins, ElementsAre(0, 1, 2));
  const std::vector<int32_t> one = {1};
  EXPECT_THAT(PackDocuments(one, 1).begins, ElementsAre(0, 1));
}

TEST(PackDocuments, KeepsEachDocumentOnceWithinItsWindow) {
  for (const int64_t count : {int64_t{1}, kPackingWindow - 1, kPackingWindow, kPackingWindow + 1,
                              3 * kPackingWindow + 5}) {
    constexpr uint64_t kSeed = 5;
    const Random random({.seed = kSeed, .stream = 0});
    std::vector<int32_t> lengths;
    for (int64_t i = 0; i < count; ++i) {
      lengths.push_back(static_cast<int32_t>(1 + random.Below(512, static_cast<uint64_t>(i))));
    }
    const PackingPlan plan = PackDocuments(lengths, 512);
    std::vector<uint32_t> order = plan.order;
    std::sort(order.begin(), order.end());
    ASSERT_EQ(order.size(), lengths.size());
    for (size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], i) << "seed " << kSeed;
    for (size_t i = 0; i < plan.order.size(); ++i) {
      ASSERT_EQ(plan.order[i] / kPackingWindow, static_cast<int64_t>(i) / kPackingWindow);
    }
    int64_t used = 0;
    for (int64_t s = 0; s < plan.sequences(); ++s) {
      int64_t sum = 0;
      for (int64_t i = plan.begins[static_cast<size_t>(s)];
           i < plan.begins[static_cast<size_t>(s) + 1]; ++i) {
        sum += lengths[plan.order[static_cast<size_t>(i)]];
      }
      ASSERT_GE(sum, 1);
      ASSERT_LE(sum, 512);
      used += sum;
    }
    // Evenly drawn lengths leave little free.
    if (count >= kPackingWindow) {
      EXPECT_GT(static_cast<double>(used), 0.98 * 512 * static_cast<double>(plan.sequences()));
    }
  }
}

TEST(OneEach, IsTheOrderGiven) {
  EXPECT_THAT(OneEach(3).order, ElementsAre(0, 1, 2));
  EXPECT_THAT(OneEach(3).begins, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(OneEach(0).sequences(), 0);
}

TEST(PackDocumentsDeathTest, ChecksLengths) {
  const std::vector<int32_t> long_one = {5};
  EXPECT_DEATH(PackDocuments(long_one, 4), "5, 4");
  const std::vector<int32_t> empty = {0};
  EXPECT_DEATH(PackDocuments(empty, 4), "0, 4");
}

}  // namespace
}  // namespace gantry
