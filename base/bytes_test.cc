#include "base/bytes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using absl::StatusCode;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

static_assert(!std::is_convertible_v<int64_t, Bytes>);
static_assert(!std::is_default_constructible_v<Bytes>);
static_assert((4_KiB).count() == 4096);
static_assert(1_GiB > 1023_MiB);

TEST(BytesTest, Literals) {
  EXPECT_EQ((7_B).count(), 7);
  EXPECT_EQ((3_MiB).count(), 3 * 1024 * 1024);
  EXPECT_EQ((8_GiB).count(), int64_t{8} << 30);
}

TEST(BytesTest, Arithmetic) {
  EXPECT_EQ(1_KiB + 1_B, Bytes(1025));
  EXPECT_EQ(1_KiB - 1_B, Bytes(1023));
  EXPECT_EQ(1_KiB * 3, Bytes(3072));
  EXPECT_EQ(3 * 1_KiB, Bytes(3072));
  Bytes sum = Bytes::Zero();
  sum += 5_B;
  sum -= 7_B;
  EXPECT_EQ(sum, Bytes(-2));
}

TEST(BytesTest, ArithmeticReachesTheLimits) {
  EXPECT_EQ(Bytes(kMax - 1) + 1_B, Bytes(kMax));
  EXPECT_EQ(Bytes(kMin + 1) - 1_B, Bytes(kMin));
  EXPECT_EQ(Bytes(kMax / 2) * 2, Bytes(kMax - 1));
}

TEST(BytesDeathTest, OverflowAborts) {
  EXPECT_DEATH(static_cast<void>(Bytes(kMax) + 1_B), "8.0 EiB \\+ 1 B");
  EXPECT_DEATH(static_cast<void>(Bytes(kMin) - 1_B), "-8.0 EiB - 1 B");
  EXPECT_DEATH(static_cast<void>(Bytes(kMax / 2 + 1) * 2), "4.0 EiB \\* 2");
}

TEST(BytesTest, ToStringUsesBinaryUnits) {
  EXPECT_EQ(Bytes(0).ToString(), "0 B");
  EXPECT_EQ(Bytes(1023).ToString(), "1023 B");
  EXPECT_EQ(Bytes(1024).ToString(), "1.0 KiB");
  EXPECT_EQ(Bytes(1536).ToString(), "1.5 KiB");
  EXPECT_EQ(Bytes(1024 + 51).ToString(), "1.0 KiB");
  EXPECT_EQ(Bytes(1024 + 52).ToString(), "1.1 KiB");
  EXPECT_EQ((128_MiB).ToString(), "128.0 MiB");
  EXPECT_EQ((5_GiB + 205_MiB).ToString(), "5.2 GiB");
  EXPECT_EQ((1024_GiB).ToString(), "1.0 TiB");
  EXPECT_EQ(Bytes(int64_t{1} << 50).ToString(), "1.0 PiB");
  EXPECT_EQ(Bytes(kMax).ToString(), "8.0 EiB");
}

TEST(BytesTest, ToStringRoundsUpIntoTheNextUnit) {
  EXPECT_EQ((1_MiB - 1_B).ToString(), "1.0 MiB");
  EXPECT_EQ((1_GiB - 1_B).ToString(), "1.0 GiB");
  EXPECT_EQ((1_MiB - 1_KiB).ToString(), "1023.0 KiB");
}

TEST(BytesTest, ToStringOfNegativeQuantities) {
  EXPECT_EQ(Bytes(-1).ToString(), "-1 B");
  EXPECT_EQ(Bytes(-1536).ToString(), "-1.5 KiB");
  EXPECT_EQ(Bytes(kMin).ToString(), "-8.0 EiB");
}

TEST(BytesTest, ParsesNumbersAndUnits) {
  EXPECT_THAT(ParseBytes("0"), IsOkAndHolds(Bytes(0)));
  EXPECT_THAT(ParseBytes("512"), IsOkAndHolds(Bytes(512)));
  EXPECT_THAT(ParseBytes("512 B"), IsOkAndHolds(Bytes(512)));
  EXPECT_THAT(ParseBytes("128MiB"), IsOkAndHolds(128_MiB));
  EXPECT_THAT(ParseBytes("1.5 GiB"), IsOkAndHolds(1536_MiB));
  EXPECT_THAT(ParseBytes("1.50GiB"), IsOkAndHolds(1536_MiB));
  EXPECT_THAT(ParseBytes("2GB"), IsOkAndHolds(Bytes(2'000'000'000)));
  EXPECT_THAT(ParseBytes("3kb"), IsOkAndHolds(Bytes(3000)));
  EXPECT_THAT(ParseBytes("4 tIb"), IsOkAndHolds(4096_GiB));
  EXPECT_THAT(ParseBytes("1TB"), IsOkAndHolds(Bytes(1'000'000'000'000)));
  EXPECT_THAT(ParseBytes("0.5KiB"), IsOkAndHolds(Bytes(512)));
  EXPECT_THAT(ParseBytes("000000000000000000000000000012KiB"), IsOkAndHolds(12_KiB));
  EXPECT_THAT(ParseBytes("7.0"), IsOkAndHolds(Bytes(7)));
}

TEST(BytesTest, ParsingRoundsFractionsDownToWholeBytes) {
  EXPECT_THAT(ParseBytes("0.1KiB"), IsOkAndHolds(Bytes(102)));
  EXPECT_THAT(ParseBytes("0.000000000000000001GiB"), IsOkAndHolds(Bytes(0)));
  EXPECT_THAT(ParseBytes("0.999999999999999999TiB"), IsOkAndHolds(1024_GiB - 1_B));
}

TEST(BytesTest, ParsingRefusesAnythingElse) {
  for (const char* text :
       {"",         " ",      "MiB", "1.",    ".5GiB",  "1..5GiB",
        "1.5.5GiB", "1 5",    "1e9", "0x10",  "+5",     " 5",
        "5 ",       "5 MiB ", "5M",  "5MiBs", "5 M iB", "nan",
        "inf",      "1,5GiB", "1.5", "1.5B",  "5\tMiB", "0.0000000000000000001GiB"}) {
    EXPECT_THAT(ParseBytes(text), StatusIs(StatusCode::kInvalidArgument, text))
        << "'" << text << "'";
  }
  EXPECT_THAT(ParseBytes(std::string_view("5\0", 2)), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(ParseBytes("-5MiB"), StatusIs(StatusCode::kInvalidArgument, "negative"));
}

TEST(BytesTest, ParsingRefusesOverflow) {
  EXPECT_THAT(ParseBytes("9223372036854775807"), IsOkAndHolds(Bytes(kMax)));
  EXPECT_THAT(ParseBytes("8388607TiB"), IsOkAndHolds(Bytes(kMax) - Bytes((int64_t{1} << 40) - 1)));
  for (const char* text : {"9223372036854775808", "8388608TiB", "9999999999999999999TiB",
                           "18446744073709551616", "99999999999999999999999999999"}) {
    EXPECT_THAT(ParseBytes(text), StatusIs(StatusCode::kInvalidArgument, "overflows")) << text;
  }
}

TEST(BytesTest, ParsesWhatToStringPrints) {
  for (const Bytes bytes : {Bytes(0), Bytes(1023), 1_KiB, 1536_B, 128_MiB, 8_GiB, 2048_GiB}) {
    EXPECT_THAT(ParseBytes(bytes.ToString()), IsOkAndHolds(bytes)) << bytes;
  }
}

TEST(BytesTest, RoundUpAndCeilDiv) {
  EXPECT_EQ(RoundUp(0, 8), 0);
  EXPECT_EQ(RoundUp(1, 8), 8);
  EXPECT_EQ(RoundUp(8, 8), 8);
  EXPECT_EQ(RoundUp(9, 8), 16);
  EXPECT_EQ(CeilDiv(0, 8), 0);
  EXPECT_EQ(CeilDiv(1, 8), 1);
  EXPECT_EQ(CeilDiv(8, 8), 1);
  EXPECT_EQ(CeilDiv(9, 8), 2);
}

}  // namespace
}  // namespace gantry
