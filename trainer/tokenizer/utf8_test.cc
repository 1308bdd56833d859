#include "trainer/tokenizer/utf8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/random.h"
#include "base/strings.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;

TEST(Utf8Test, CharactersComeBackFromTheirBytes) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string text = ToUtf8(c);
    ASSERT_EQ(Utf8SequenceSize(text), text.size());
    ASSERT_EQ(CharacterAt(text, 0).value, c);
    ASSERT_EQ(CharacterAt(text, 0).size, text.size());
  }
}

TEST(Utf8Test, FindsThePreviousCharacter) {
  const std::string text = "aé€😀";
  EXPECT_EQ(PreviousCharacter(text, 10), 6u);
  EXPECT_EQ(PreviousCharacter(text, 6), 3u);
  EXPECT_EQ(PreviousCharacter(text, 3), 1u);
  EXPECT_EQ(PreviousCharacter(text, 1), 0u);
}

TEST(Utf8Test, ValidSizeEndsAtTheFirstBrokenByte) {
  EXPECT_EQ(ValidUtf8Size(""), 0u);
  EXPECT_EQ(ValidUtf8Size("0123456789abcdef"), 16u);
  EXPECT_EQ(ValidUtf8Size("0123456789é\xFF"), 12u);
  EXPECT_EQ(ValidUtf8Size("01234567\x80"), 8u);
}

TEST(Utf8Test, TellsUnfinishedFromBroken) {
  EXPECT_TRUE(IsUnfinishedUtf8("\xF0\x9F\x98"));
  EXPECT_TRUE(IsUnfinishedUtf8("\xC3"));
  EXPECT_FALSE(IsUnfinishedUtf8("\x80"));
  EXPECT_FALSE(IsUnfinishedUtf8("\xED\xA0"));
  EXPECT_FALSE(IsUnfinishedUtf8("\xE2\x82z"));
}

TEST(Utf8Test, MendedTextsKnowWhereTheyComeFrom) {
  const MendedText mended = MendUtf8("a\xE2\x82z");
  EXPECT_EQ(mended.text, "a\uFFFDz");
  EXPECT_THAT(mended.origins, ElementsAre(0, 1, 1, 1, 3, 4));
  EXPECT_THAT(MendUtf8("").origins, ElementsAre(0));
}

TEST(Utf8Test, RandomBytesBecomeValid) {
  constexpr uint64_t kSeed = 1;
  SCOPED_TRACE(StrCat("seed ", kSeed));
  const Random random({.seed = kSeed, .stream = 0});
  uint64_t draw = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes;
    const int64_t size = random.Below(12, draw++);
    for (int64_t i = 0; i < size; ++i) {
      constexpr std::string_view kBytes = "a\x80\xBF\xC3\xE0\xE2\x82\x9F\xED\xA0\xF0\x90\xF4\xFF";
      bytes += kBytes[static_cast<size_t>(random.Below(kBytes.size(), draw++))];
    }
    const MendedText mended = MendUtf8(bytes);
    ASSERT_EQ(ValidUtf8Size(mended.text), mended.text.size());
    ASSERT_EQ(mended.origins.size(), mended.text.size() + 1);
    ASSERT_EQ(mended.origins.back(), bytes.size());
    std::string appended;
    AppendValidUtf8(bytes, appended);
    ASSERT_EQ(appended, mended.text);
  }
}

}  // namespace
}  // namespace gantry
