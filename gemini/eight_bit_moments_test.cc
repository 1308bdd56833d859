// Goal: whatever the order and the pieces in which moments are written, the codes are those of the
// values written last, encoded block by block.
#include "gemini/eight_bit_moments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "base/strings.h"
#include "chunk/optimizer_states.h"

namespace gantry {
namespace {

constexpr int64_t kChunk = kChunkGranularityElements;
constexpr int64_t kBlock = kQuantizationBlockElements;
constexpr int64_t kScaleBytes = 8 * kChunk / kBlock;  // of a chunk

// Tensors of 3000 and 1000 elements, padding from 3000 to 3008, nothing after 4008.
class EightBitMomentsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kSecond = 3008;
  static constexpr int64_t kEnd = 4008;

  explicit EightBitMomentsTest(OptimizerKind kind = OptimizerKind::kAdamW) {
    auto layout = ChunkLayout::Create({{.name = "a", .shape = {3000}, .dtype = DType::kBF16},
                                       {.name = "b", .shape = {1000}, .dtype = DType::kBF16},
                                       {.name = "frozen",
                                        .shape = {10},
                                        .dtype = DType::kBF16,
                                        .trainability = Trainability::kFrozen}},
                                      {},
                                      {.chunk_elements = kChunk,
                                       .gradient_dtype = DType::kBF16,
                                       .optimizer = kind,
                                       .state_format = StateFormat::kEightBit});
    GANTRY_CHECK_OK(layout.status());
    layout_ = std::make_unique<ChunkLayout>(*std::move(layout));
    moments_ = std::make_unique<EightBitMoments>(*layout_);
    codes_.assign(2 * kChunk, 0);
  }

  std::vector<float> Read(StateKind moment, int64_t element, int64_t count) const {
    std::vector<float> values(static_cast<size_t>(count));
    moments_->Read({moment, ChunkId(0)}, element, codes_.data(), values);
    return values;
  }
  void Write(StateKind moment, int64_t element, std::span<const float> values) {
    moments_->Write({moment, ChunkId(0)}, element, values, codes_.data());
  }

  std::unique_ptr<ChunkLayout> layout_;
  std::unique_ptr<EightBitMoments> moments_;
  std::vector<uint8_t> codes_;
};

std::vector<float> Values(StateKind moment, uint64_t seed, int64_t count) {
  const Random random({.seed = seed, .stream = 3});
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(random.Normal(i) * std::pow(10.0, random.Below(4, i)));
    values[i] = moment == StateKind::kVariance ? value * value : value;
  }
  return values;
}

TEST_F(EightBitMomentsTest, WhatWasNeverWrittenIsZero) {
  EXPECT_EQ(Read(StateKind::kMomentum, 0, kEnd), std::vector<float>(kEnd, 0.0f));
  EXPECT_EQ(Read(StateKind::kVariance, 0, kEnd), std::vector<float>(kEnd, 0.0f));
  EXPECT_EQ(moments_->bytes().count(), kScaleBytes);  // the frozen chunk has none
}

TEST_F(EightBitMomentsTest, PartsOfABlockAreKeptAsTheyAre) {
  const std::vector<float> part = Values(StateKind::kMomentum, 1, 100);
  Write(StateKind::kMomentum, 50, part);
  EXPECT_EQ(Read(StateKind::kMomentum, 50, 100), part);
  EXPECT_EQ(Read(StateKind::kMomentum, 0, 50), std::vector<float>(50, 0.0f));
  EXPECT_GT(moments_->bytes().count(), kScaleBytes);
  moments_->Settle(ChunkId(0), codes_.data());
  EXPECT_EQ(moments_->bytes().count(), kScaleBytes);
  const std::vector<float> rounded = Read(StateKind::kMomentum, 50, 100);
  EXPECT_NE(rounded, part);
  float largest = 0.0f;
  for (const float value : part) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < part.size(); ++i) EXPECT_NEAR(rounded[i], part[i], 0.0072f * largest);
}

// The second block ends with the last tensor: padding and what follows need not be written.
TEST_F(EightBitMomentsTest, AWholeBlockIsEncodedAtOnce) {
  Write(StateKind::kVariance, 0, Values(StateKind::kVariance, 2, kBlock - 1));
  EXPECT_GT(moments_->bytes().count(), kScaleBytes);
  Write(StateKind::kVariance, kBlock - 1, Values(StateKind::kVariance, 3, 1));
  EXPECT_EQ(moments_->bytes().count(), kScaleBytes);
  Write(StateKind::kVariance, kBlock, Values(StateKind::kVariance, 4, 3000 - kBlock));
  EXPECT_GT(moments_->bytes().count(), kScaleBytes);
  Write(StateKind::kVariance, kSecond, Values(StateKind::kVariance, 5, 1000));
  EXPECT_EQ(moments_->bytes().count(), kScaleBytes);
}

TEST_F(EightBitMomentsTest, OrderAndPiecesMakeNoDifference) {
  std::vector<uint8_t> expected;
  std::vector<float> momentum;
  std::vector<float> variance;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    moments_ = std::make_unique<EightBitMoments>(*layout_);
    std::ranges::fill(codes_, uint8_t{0});
    // Both moments of both tensors, cut into pieces, shuffled.
    struct Piece {
      StateKind moment;
      int64_t begin;
      int64_t end;
    };
    const Random random({.seed = seed, .stream = 4});
    uint64_t draw = 0;
    std::vector<Piece> pieces;
    for (const StateKind moment : {StateKind::kMomentum, StateKind::kVariance}) {
      for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 3000}, {kSecond, kEnd}}) {
        for (int64_t begin = first; begin < last;) {
          const int64_t end = std::min(last, begin + 1 + random.Below(1500, draw++));
          pieces.push_back({moment, begin, end});
          begin = end;
        }
      }
    }
    for (size_t i = pieces.size(); i > 1 && seed > 0; --i) {
      std::swap(pieces[i - 1],
                pieces[static_cast<size_t>(random.Below(static_cast<int64_t>(i), draw++))]);
    }
    for (const Piece& piece : pieces) {
      const std::vector<float> all = Values(piece.moment, 9, kEnd);
      Write(piece.moment, piece.begin,
            std::span(all).subspan(static_cast<size_t>(piece.begin),
                                   static_cast<size_t>(piece.end - piece.begin)));
    }
    EXPECT_EQ(moments_->bytes().count(), kScaleBytes);
    if (seed == 0) {
      expected = codes_;
      momentum = Read(StateKind::kMomentum, 0, kEnd);
      variance = Read(StateKind::kVariance, 0, kEnd);
    }
    EXPECT_EQ(codes_, expected);
    EXPECT_EQ(Read(StateKind::kMomentum, 0, kEnd), momentum);
    EXPECT_EQ(Read(StateKind::kVariance, 0, kEnd), variance);
  }
  // What was read comes back.
  moments_ = std::make_unique<EightBitMoments>(*layout_);
  std::ranges::fill(codes_, uint8_t{0});
  Write(StateKind::kVariance, kSecond, std::span(variance).subspan(kSecond));
  Write(StateKind::kMomentum, 0, std::span(momentum).first(3000));
  Write(StateKind::kVariance, 0, std::span(variance).first(3000));
  Write(StateKind::kMomentum, kSecond, std::span(momentum).subspan(kSecond));
  EXPECT_EQ(Read(StateKind::kMomentum, 0, kEnd), momentum);
  EXPECT_EQ(Read(StateKind::kVariance, 0, kEnd), variance);
}

class EightBitMomentumTest : public EightBitMomentsTest {
 protected:
  EightBitMomentumTest() : EightBitMomentsTest(OptimizerKind::kLion) {}
};

TEST_F(EightBitMomentumTest, KindsWithoutAVarianceLeaveItsCodesZero) {
  Write(StateKind::kMomentum, 0, Values(StateKind::kMomentum, 6, 3000));
  Write(StateKind::kMomentum, kSecond, Values(StateKind::kMomentum, 7, 1000));
  for (size_t i = 1; i < codes_.size(); i += 2) ASSERT_EQ(codes_[i], 0) << i;
  EXPECT_EQ(moments_->scales(ChunkId(0))[0].variance, 0.0f);
  EXPECT_NE(moments_->scales(ChunkId(0))[0].momentum, 0.0f);
  EXPECT_DEATH(Write(StateKind::kVariance, 0, std::vector<float>(kBlock, 1.0f)), "variance");
}

}  // namespace
}  // namespace gantry
