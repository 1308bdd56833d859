// Goal: the conversions are right for every 16-bit pattern and for every place where rounding
// changes. Method: a scalar reference that shares nothing with the code under test decodes with
// ldexp in double precision and rounds by searching the table of all finite values.
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/random.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using absl::StatusCode;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Format {
  const char* name;
  int mantissa_bits;
  int exponent_bias;
  uint16_t (*to_bits)(float);
  float (*to_float)(uint16_t);

  uint32_t infinity() const { return 0x7fffu & ~((1u << mantissa_bits) - 1); }
  uint32_t quiet_bit() const { return 1u << (mantissa_bits - 1); }
  uint32_t largest_finite() const { return infinity() - 1; }
};

std::ostream& operator<<(std::ostream& out, const Format& format) { return out << format.name; }

const Format kFormats[] = {
    {.name = "bf16",
     .mantissa_bits = 7,
     .exponent_bias = 127,
     .to_bits = [](float value) { return FloatToBF16Bits(value); },
     .to_float = [](uint16_t bits) { return BF16BitsToFloat(bits); }},
    {.name = "f16",
     .mantissa_bits = 10,
     .exponent_bias = 15,
     .to_bits = FloatToF16Bits,
     .to_float = F16BitsToFloat},
};

// The value of a finite non-negative pattern; of infinity, what the next larger finite value would
// be, which is where overflow rounds to.
double ReferenceValue(const Format& format, uint32_t bits) {
  const auto exponent = static_cast<int>(bits >> format.mantissa_bits);
  const uint32_t mantissa = bits & ((1u << format.mantissa_bits) - 1);
  const int scale = 1 - format.exponent_bias - format.mantissa_bits;
  if (exponent == 0) return std::ldexp(mantissa, scale);
  return std::ldexp(mantissa + (1u << format.mantissa_bits), scale + exponent - 1);
}

class Reference {
 public:
  explicit Reference(const Format& format) : format_(format) {
    for (uint32_t bits = 0; bits <= format.infinity(); ++bits) {
      values_.push_back(ReferenceValue(format, bits));
    }
  }

  // The pattern nearest to `value`, ties to the even pattern. REQUIRES: not NaN.
  uint32_t Round(float value) const {
    const uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
    const double magnitude = std::fabs(static_cast<double>(value));
    const auto above = std::lower_bound(values_.begin(), values_.end(), magnitude);
    if (above == values_.end()) return sign | format_.infinity();
    const auto upper = static_cast<uint32_t>(above - values_.begin());
    if (*above == magnitude) return sign | upper;
    const uint32_t lower = upper - 1;
    const double below_distance = magnitude - values_[lower];
    const double above_distance = values_[upper] - magnitude;
    if (below_distance != above_distance) {
      return sign | (below_distance < above_distance ? lower : upper);
    }
    return sign | (lower % 2 == 0 ? lower : upper);
  }
  double value(uint32_t bits) const { return values_[bits]; }

 private:
  Format format_;
  std::vector<double> values_;
};

class DTypeConversionTest : public ::testing::TestWithParam<Format> {};

TEST_P(DTypeConversionTest, EveryPatternHasTheReferenceValue) {
  const Format& format = GetParam();
  for (uint32_t bits = 0; bits < format.infinity(); ++bits) {
    const double expected = ReferenceValue(format, bits);
    const float positive = format.to_float(static_cast<uint16_t>(bits));
    const float negative = format.to_float(static_cast<uint16_t>(bits | 0x8000u));
    ASSERT_EQ(static_cast<double>(positive), expected) << bits;
    ASSERT_FALSE(std::signbit(positive)) << bits;
    ASSERT_EQ(static_cast<double>(negative), -expected) << bits;
    ASSERT_TRUE(std::signbit(negative)) << bits;
  }
  EXPECT_EQ(format.to_float(static_cast<uint16_t>(format.infinity())), kInfinity);
  EXPECT_EQ(format.to_float(static_cast<uint16_t>(format.infinity() | 0x8000u)), -kInfinity);
}

TEST_P(DTypeConversionTest, Every16BitPatternRoundTrips) {
  const Format& format = GetParam();
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float value = format.to_float(static_cast<uint16_t>(bits));
    const bool is_nan = (bits & 0x7fffu) > format.infinity();
    ASSERT_EQ(std::isnan(value), is_nan) << bits;
    // NaN keeps sign and payload but becomes quiet.
    const uint32_t expected = is_nan ? bits | format.quiet_bit() : bits;
    ASSERT_EQ(format.to_bits(value), expected) << bits;
  }
}

TEST_P(DTypeConversionTest, RoundsToNearestAndTiesToEven) {
  const Format& format = GetParam();
  const Reference reference(format);
  for (uint32_t bits = 0; bits <= format.largest_finite(); ++bits) {
    const double middle = (reference.value(bits) + reference.value(bits + 1)) / 2;
    const auto tie = static_cast<float>(middle);
    ASSERT_EQ(static_cast<double>(tie), middle) << "the tie must be a float: " << bits;
    const uint32_t even = bits + bits % 2;
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float direction = sign == 0 ? 1.0f : -1.0f;
      ASSERT_EQ(format.to_bits(direction * tie), sign | even) << bits;
      ASSERT_EQ(format.to_bits(direction * std::nextafter(tie, 0.0f)), sign | bits) << bits;
      ASSERT_EQ(format.to_bits(direction * std::nextafter(tie, kInfinity)), sign | (bits + 1))
          << bits;
    }
  }
}

TEST_P(DTypeConversionTest, RandomFloatsMatchTheReference) {
  const Format& format = GetParam();
  const Reference reference(format);
  constexpr uint64_t kSeed = 20240607;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  const Random random({.seed = kSeed, .stream = 0});
  for (uint64_t i = 0; i < 300'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random.Bits(i)));
    if (std::isnan(value)) {
      const float back = format.to_float(format.to_bits(value));
      ASSERT_TRUE(std::isnan(back)) << i;
      ASSERT_EQ(std::signbit(back), std::signbit(value)) << i;
    } else {
      ASSERT_EQ(format.to_bits(value), reference.Round(value)) << i << ": " << value;
    }
  }
}

TEST_P(DTypeConversionTest, RandomFloatsInRangeMatchTheReference) {
  // Most random patterns overflow or underflow binary16: these do not.
  const Format& format = GetParam();
  const Reference reference(format);
  constexpr uint64_t kSeed = 20240608;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  const Random random({.seed = kSeed, .stream = 0});
  for (uint64_t i = 0; i < 300'000; ++i) {
    const int exponent = static_cast<int>(random.Below(44, 2 * i + 1)) - 27;
    const auto value = static_cast<float>(std::ldexp(random.Uniform(2 * i) - 0.5, exponent));
    ASSERT_EQ(format.to_bits(value), reference.Round(value)) << i << ": " << value;
  }
}

TEST_P(DTypeConversionTest, Extremes) {
  const Format& format = GetParam();
  const uint32_t infinity = format.infinity();
  EXPECT_EQ(format.to_bits(0.0f), 0u);
  EXPECT_EQ(format.to_bits(-0.0f), 0x8000u);
  EXPECT_EQ(format.to_bits(kInfinity), infinity);
  EXPECT_EQ(format.to_bits(-kInfinity), infinity | 0x8000u);
  EXPECT_EQ(format.to_bits(std::numeric_limits<float>::max()), infinity);
  EXPECT_EQ(format.to_bits(std::numeric_limits<float>::denorm_min()), 0u);
  // A NaN whose payload lies only in the bits that are cut must not become infinity.
  for (const uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0x7fc00000u}) {
    const uint16_t bits = format.to_bits(std::bit_cast<float>(nan));
    EXPECT_GT(bits & 0x7fffu, infinity) << nan;
    EXPECT_EQ(bits & format.quiet_bit(), format.quiet_bit()) << nan;
    EXPECT_EQ(bits & 0x8000u, (nan >> 16) & 0x8000u) << nan;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, DTypeConversionTest, ::testing::ValuesIn(kFormats),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(DTypeTest, KnownValues) {
  EXPECT_EQ(BFloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(Float16(1.0f).bits, 0x3c00);
  EXPECT_EQ(Float16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(Float16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Float16(0x1p-24f).bits, 0x0001);
  EXPECT_EQ(Float16(0x1p-25f).bits, 0x0000);
  EXPECT_EQ(Float16(0x1.000002p-25f).bits, 0x0001);
  EXPECT_EQ(Float16(0x1p-14f).bits, 0x0400);
  EXPECT_EQ(static_cast<float>(BFloat16(3.140625f)), 3.140625f);
  EXPECT_EQ(static_cast<float>(Float16(3.140625f)), 3.140625f);
}

TEST(DTypeTest, EqualityComparesBits) {
  EXPECT_EQ(BFloat16(2.0f), BFloat16(2.0f));
  EXPECT_NE(BFloat16(0.0f), BFloat16(-0.0f));
  const auto nan = Float16(std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(nan, nan);
}

TEST(DTypeTest, BFloat16ConvertsAtCompileTime) {
  static_assert(BFloat16(1.5f).bits == 0x3fc0);
  static_assert(static_cast<float>(BFloat16(1.5f)) == 1.5f);
}

TEST(DTypeTest, SizesAndTypes) {
  EXPECT_EQ(SizeOf(DType::kF32), 4);
  EXPECT_EQ(SizeOf(DType::kBF16), 2);
  EXPECT_EQ(SizeOf(DType::kF16), 2);
  static_assert(DTypeOf<float>::value == DType::kF32);
  static_assert(DTypeOf<BFloat16>::value == DType::kBF16);
  static_assert(DTypeOf<Float16>::value == DType::kF16);
}

TEST(DTypeTest, NamesParseBack) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    EXPECT_THAT(ParseDType(Name(dtype)), IsOkAndHolds(dtype));
    std::ostringstream out;
    out << dtype;
    EXPECT_EQ(out.str(), Name(dtype));
  }
  EXPECT_THAT(ParseDType("fp32"), IsOkAndHolds(DType::kF32));
  EXPECT_THAT(ParseDType("float32"), IsOkAndHolds(DType::kF32));
  EXPECT_THAT(ParseDType("bfloat16"), IsOkAndHolds(DType::kBF16));
  EXPECT_THAT(ParseDType("fp16"), IsOkAndHolds(DType::kF16));
  EXPECT_THAT(ParseDType("float16"), IsOkAndHolds(DType::kF16));
}

TEST(DTypeTest, OtherNamesAreRefused) {
  for (const char* name : {"", "f64", "F32", "bf16 ", "int8"}) {
    EXPECT_THAT(ParseDType(name),
                StatusIs(StatusCode::kInvalidArgument, "'" + std::string(name) + "'"));
  }
}

TEST(DTypeDeathTest, NamingAForeignValueAborts) {
  EXPECT_DEATH(static_cast<void>(Name(static_cast<DType>(9))), "no such dtype: 9");
}

}  // namespace
}  // namespace gantry
