#include "trainer/tokenizer/unicode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/strings.h"
#include "trainer/tokenizer/utf8.h"

namespace gantry {
namespace {

std::string Normalized(const Normalization& normalization, std::string_view text) {
  std::string out;
  std::vector<NormalizedCharacter> characters;
  while (!text.empty()) {
    const size_t unchanged = normalization.UnchangedSize(text);
    out += text.substr(0, unchanged);
    text.remove_prefix(unchanged);
    if (text.empty()) break;
    const size_t changed = normalization.ChangedSize(text);
    characters.clear();
    normalization.Normalize(text.substr(0, changed), characters);
    int64_t taken = 0;
    for (const NormalizedCharacter& character : characters) {
      AppendUtf8(character.value, out);
      taken += character.taken;
    }
    // Every character of the source is accounted for.
    int64_t count = 0;
    for (size_t at = 0; at < changed; at += CharacterAt(text, at).size) ++count;
    EXPECT_EQ(taken, count) << text;
    text.remove_prefix(changed);
  }
  return out;
}

std::string Utf8procNormalized(const std::string& text, int options) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &result,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | options));
  EXPECT_GE(size, 0);
  std::string out(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
  std::free(result);
  return out;
}

TEST(NormalizationTest, AgreesWithUtf8procWherePiecesBegin) {
  constexpr uint64_t kSeed = 3;
  SCOPED_TRACE(StrCat("seed ", kSeed));
  const Random random({.seed = kSeed, .stream = 0});
  uint64_t draw = 0;
  struct Form {
    NormalForm form;
    int options;
  };
  const Form forms[] = {{NormalForm::kNfc, UTF8PROC_COMPOSE},
                        {NormalForm::kNfd, UTF8PROC_DECOMPOSE},
                        {NormalForm::kNfkc, UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
                        {NormalForm::kNfkd, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
  const std::u32string_view characters =
      U"aeo "
      U"\u0301\u0323\u0327\u0308\u0344éẹçǘ\u1100\u1161\u11A8각가ﬁ½ﷺかゞ\u3099\u09C7\u09BEÅ\u212B";
  for (const Form& form : forms) {
    const Normalization normalization(form.form);
    for (int round = 0; round < 20'000; ++round) {
      std::string text;
      const int64_t size = random.Below(8, draw++);
      for (int64_t i = 0; i < size; ++i) {
        AppendUtf8(characters[static_cast<size_t>(random.Below(characters.size(), draw++))], text);
      }
      ASSERT_EQ(Normalized(normalization, text), Utf8procNormalized(text, form.options)) << text;
    }
  }
}

TEST(NormalizationTest, LeavesNewCharactersAlone) {
  // U+A7F2 has a compatible decomposition since Unicode 14.
  EXPECT_EQ(Normalized(Normalization(NormalForm::kNfkc), "a\uA7F2"), "a\uA7F2");
}

TEST(UnicodeTest, Lowercases) {
  char32_t buffer[2];
  EXPECT_EQ(Lowercase('A', buffer), U"a");
  EXPECT_EQ(Lowercase('1', buffer), U"1");
  EXPECT_EQ(Lowercase(U'É', buffer), U"é");
  EXPECT_EQ(Lowercase(U'Σ', buffer), U"σ");
  EXPECT_EQ(Lowercase(U'İ', buffer), U"i\u0307");
  EXPECT_EQ(Lowercase(0x10D50, buffer), U"\U00010D70");
}

TEST(UnicodeTest, KnowsClasses) {
  EXPECT_TRUE(IsWhitespace(' ') && IsWhitespace('\v') && IsWhitespace(0x3000));
  EXPECT_FALSE(IsWhitespace(0x180E) || IsWhitespace(0x200B) || IsWhitespace('a'));
  EXPECT_TRUE(IsNumeric('7') && IsNumeric(U'²') && IsNumeric(U'Ⅷ'));
  EXPECT_FALSE(IsNumeric('a') || IsNumeric('/') || IsNumeric(':'));
  EXPECT_TRUE(IsPunctuation('$') && IsPunctuation('~') && IsPunctuation(U'。'));
  EXPECT_FALSE(IsPunctuation('a') || IsPunctuation(' ') || IsPunctuation(U'€'));
  EXPECT_TRUE(IsMark(0x301) && IsMark(0x903));
  EXPECT_FALSE(IsMark('a') || IsMark(U'é'));
  EXPECT_TRUE(IsWordCharacter('_') && IsWordCharacter('9') && IsWordCharacter(0x301));
  EXPECT_FALSE(IsWordCharacter('-') || IsWordCharacter(' '));
}

TEST(UnicodeTest, StandInsKeepEveryPlace) {
  std::string out = "before";
  EXPECT_FALSE(StandInsForPcre2("plain é 人 😀", out));
  EXPECT_EQ(out, "before");
  const std::string text = "a\u180Eb\U00031350";
  EXPECT_TRUE(StandInsForPcre2(text, out));
  EXPECT_EQ(out, "a\u200Bb\U00020000");
}

}  // namespace
}  // namespace gantry
