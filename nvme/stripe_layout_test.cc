#include "nvme/stripe_layout.h"

#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "nvme/io_backend.h"

namespace gantry {
namespace {

StripeLayout Layout(int64_t bytes, std::vector<double> shares) {
  auto layout = StripeLayout::Create({.extent_bytes = Bytes(bytes), .shares = std::move(shares)});
  GANTRY_CHECK_OK(layout.status());
  return *std::move(layout);
}

std::vector<int64_t> Parts(const StripeLayout& layout) {
  std::vector<int64_t> parts;
  int64_t offset = 0;
  for (int64_t i = 0; i < layout.stripes(); ++i) {
    EXPECT_EQ(layout.part_offset(i), offset);
    parts.push_back(layout.part_bytes(i));
    offset += parts.back();
  }
  return parts;
}

constexpr int64_t kPiece = kPieceBytes;

TEST(StripeLayoutTest, OneDirectoryHasEverything) {
  for (const int64_t bytes : {int64_t{4096}, kPiece - 4096, kPiece, 3 * kPiece + 4096}) {
    const StripeLayout layout = Layout(bytes, {7.0});
    EXPECT_TRUE(layout.cut());
    EXPECT_EQ(Parts(layout), std::vector<int64_t>{bytes});
    EXPECT_EQ(layout.share(0), 1.0);
  }
}

TEST(StripeLayoutTest, LargeExtentsAreCutInProportion) {
  EXPECT_EQ(Parts(Layout(2 * kPiece, {1, 1})), (std::vector<int64_t>{kPiece, kPiece}));
  EXPECT_EQ(Parts(Layout(8 * kPiece, {3, 1})), (std::vector<int64_t>{6 * kPiece, 2 * kPiece}));
  // What is more than whole pieces is the last directory's.
  EXPECT_EQ(Parts(Layout(2 * kPiece + 4096, {1, 1})),
            (std::vector<int64_t>{kPiece, kPiece + 4096}));
  EXPECT_EQ(Parts(Layout(10 * kPiece, {1, 1, 1})),
            (std::vector<int64_t>{3 * kPiece, 4 * kPiece, 3 * kPiece}));
}

TEST(StripeLayoutTest, SmallExtentsAreDealtOutInProportion) {
  EXPECT_FALSE(Layout(2 * kPiece - 4096, {1, 1}).cut());
  EXPECT_FALSE(Layout(2 * kPiece, {3, 1}).cut());  // the second would get nothing
  StripeLayout layout = Layout(4096, {3, 1});
  ASSERT_FALSE(layout.cut());
  EXPECT_EQ(layout.part_bytes(1), 4096);
  EXPECT_EQ(layout.part_offset(1), 0);
  std::vector<int64_t> counts(2, 0);
  for (int i = 0; i < 400; ++i) ++counts[static_cast<size_t>(layout.Deal())];
  EXPECT_EQ(counts, (std::vector<int64_t>{300, 100}));
}

TEST(StripeLayoutTest, RandomLayoutsTileTheExtentAndKeepTheProportion) {
  constexpr uint64_t kSeed = 8812;
  SCOPED_TRACE(StrCat("seed ", kSeed));
  const Random random({.seed = kSeed, .stream = 0});
  uint64_t draw = 0;
  for (int round = 0; round < 500; ++round) {
    const int64_t stripes = 1 + random.Below(6, draw++);
    std::vector<double> shares;
    double sum = 0;
    for (int64_t i = 0; i < stripes; ++i) {
      shares.push_back(0.1 + random.Uniform(draw++));
      sum += shares.back();
    }
    const int64_t bytes = 4096 * (1 + random.Below(20'000, draw++));
    StripeLayout layout = Layout(bytes, shares);
    if (layout.cut()) {
      int64_t total = 0;
      for (const int64_t part : Parts(layout)) {
        EXPECT_GE(part, std::min(kPiece, bytes));
        total += part;
      }
      EXPECT_EQ(total, bytes);
      for (int64_t i = 0; i < stripes; ++i) {
        EXPECT_NEAR(layout.share(i), shares[static_cast<size_t>(i)] / sum, 1e-12);
        EXPECT_EQ(layout.part_offset(i) % kPiece, 0);
        EXPECT_NEAR(static_cast<double>(layout.part_bytes(i)),
                    layout.share(i) * static_cast<double>(bytes), 2.0 * kPiece);
      }
      continue;
    }
    std::vector<int64_t> counts(static_cast<size_t>(stripes), 0);
    for (int deal = 1; deal <= 300; ++deal) {
      ++counts[static_cast<size_t>(layout.Deal())];
      for (int64_t i = 0; i < stripes; ++i) {
        EXPECT_LE(static_cast<double>(counts[static_cast<size_t>(i)]),
                  layout.share(i) * static_cast<double>(deal + stripes) + 1);
      }
    }
  }
}

TEST(StripeLayoutTest, BadNumbers) {
  const double infinite = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& shares :
       std::vector<std::vector<double>>{{}, {0.0}, {1, -1}, {1, std::nan("")}, {infinite, 1}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        StripeLayout::Create({.extent_bytes = Bytes(4096), .shares = shares}).status()));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(
      StripeLayout::Create({.extent_bytes = Bytes(0), .shares = {1}}).status()));
}

}  // namespace
}  // namespace gantry
