#include "trainer/booster/text_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;

// What each byte hands out, and at last the rest.
std::vector<std::string> Pieces(std::string_view bytes) {
  const std::unique_ptr<TextDecoder> decoder = ByteCodec().NewDecoder();
  std::vector<std::string> pieces;
  for (const char byte : bytes) pieces.push_back(decoder->Next(static_cast<unsigned char>(byte)));
  pieces.push_back(decoder->Finish());
  return pieces;
}

TEST(ByteCodec, TokensAreBytes) {
  EXPECT_THAT(ByteCodec().Encode("a\xff"), IsOkAndHolds(ElementsAre('a', 255)));
  EXPECT_THAT(ByteCodec().Encode(""), IsOkAndHolds(ElementsAre()));
  EXPECT_EQ(ByteCodec().vocabulary_size(), 256);
}

TEST(ByteCodec, HandsOutWholeCharacters) {
  EXPECT_THAT(Pieces("ab"), ElementsAre("a", "b", ""));
  EXPECT_THAT(Pieces("\xc3\xbcx"), ElementsAre("", "\xc3\xbc", "x", ""));
  EXPECT_THAT(Pieces("\xe2\x82\xac"), ElementsAre("", "", "\xe2\x82\xac", ""));
  EXPECT_THAT(Pieces("\xf0\x9f\x98\x80"), ElementsAre("", "", "", "\xf0\x9f\x98\x80", ""));
}

TEST(ByteCodec, BytesThatAreNoCharacterComeOutAsTheyAre) {
  EXPECT_THAT(Pieces("\xff"), ElementsAre("\xff", ""));
  EXPECT_THAT(Pieces("\x80z"), ElementsAre("\x80", "z", ""));
  EXPECT_THAT(Pieces("\xc3z"), ElementsAre("", "\xc3z", ""));
  EXPECT_THAT(Pieces("\xe2\x82"), ElementsAre("", "", "\xe2\x82"));
  EXPECT_THAT(Pieces("\xe0\x80"), ElementsAre("", "\xe0\x80", ""));  // overlong
  EXPECT_THAT(Pieces("\xed\xa0"), ElementsAre("", "\xed\xa0", ""));  // a surrogate
  EXPECT_THAT(Pieces("\xf4\x90"), ElementsAre("", "\xf4\x90", ""));  // beyond the last
  EXPECT_THAT(Pieces("\xf0\x9f\xc3\xbc"), ElementsAre("", "", "\xf0\x9f", "\xc3\xbc", ""));
}

TEST(ByteCodec, NothingIsLostAndNoCharacterSplit) {
  constexpr uint64_t kSeed = 17;
  SCOPED_TRACE(kSeed);
  const Random random({.seed = kSeed, .stream = 0});
  uint64_t index = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    const int64_t count = random.Below(12, index++);
    constexpr std::string_view kBytes = "a\x80\xbf\xc3\xe2\xed\xf0\xf4\x9f\x98\xa0\xff";
    for (int64_t i = 0; i < count; ++i) {
      bytes += kBytes[static_cast<size_t>(random.Below(std::ssize(kBytes), index++))];
    }
    std::string joined;
    for (const std::string& piece : Pieces(bytes)) {
      joined += piece;
      // A piece never ends within a character of the whole.
      std::string_view rest = std::string_view(bytes).substr(0, bytes.size());
      size_t at = 0;
      while (at < joined.size() && !rest.empty()) {
        const size_t size = std::max<size_t>(1, Utf8SequenceSize(rest));
        at += size;
        rest.remove_prefix(size);
      }
      EXPECT_EQ(at, joined.size());
    }
    EXPECT_EQ(joined, bytes);
  }
}

}  // namespace
}  // namespace gantry
