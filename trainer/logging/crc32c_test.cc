#include "trainer/logging/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace gantry {
namespace {

// The examples of RFC 3720, B.4.
TEST(Crc32cTest, AgreesWithTheStandard) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(Crc32c(rising), 0x46dd794eU);
  EXPECT_EQ(Crc32c(std::string(rising.rbegin(), rising.rend())), 0x113fdb5cU);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283U);
}

TEST(Crc32cTest, NothingHasTheChecksumZero) {
  EXPECT_EQ(Crc32c(""), 0U);
  EXPECT_EQ(MaskedCrc32c(""), 0xa282ead8U);
}

// 0xe3069283 rotated right by 15 bits, plus 0xa282ead8.
TEST(Crc32cTest, MasksByRotationAndSum) { EXPECT_EQ(MaskedCrc32c("123456789"), 0xc78ab0e5U); }

TEST(Crc32cTest, EveryBitCounts) {
  const std::string text = "a record of some length";
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(Crc32c(changed), Crc32c(text)) << "bit " << bit;
  }
}

}  // namespace
}  // namespace gantry
