#include "trainer/tokenizer/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Matches(std::string_view pattern, std::string_view text) {
  const absl::StatusOr<std::unique_ptr<Regex>> regex = Regex::Create(pattern);
  GANTRY_CHECK_OK(regex.status());
  RegexScratch scratch;
  std::vector<std::string> matches;
  GANTRY_CHECK_OK((*regex)->ForEachMatch(text, scratch, [&](Regex::Match match) {
    matches.emplace_back(text.substr(match.begin, match.end - match.begin));
  }));
  return matches;
}

TEST(RegexTest, FindsMatchesFromLeftToRight) {
  EXPECT_THAT(Matches("\\p{L}+| ?\\d", "ab 12é"), ElementsAre("ab", " 1", "2", "é"));
  EXPECT_THAT(Matches("x", "ab"), IsEmpty());
  EXPECT_THAT(Matches("a", ""), IsEmpty());
}

TEST(RegexTest, EmptyMatchesCountButNotAfterAMatch) {
  EXPECT_THAT(Matches("b*", "abba"), ElementsAre("", "bb", ""));
  EXPECT_THAT(Matches("", "é"), ElementsAre("", ""));
  EXPECT_THAT(Matches("", ""), ElementsAre(""));
}

TEST(RegexTest, TheMongolianVowelSeparatorIsNoSpace) {
  EXPECT_THAT(Matches("\\s", "\u180E\u1680"), ElementsAre("\u1680"));
  EXPECT_THAT(Matches("\\S", "\u180E"), ElementsAre("\u180E"));
}

TEST(RegexTest, KnowsNewerCharactersThanPcre2) {
  EXPECT_THAT(Matches("\\p{L}", "\U00031350"), ElementsAre("\U00031350"));
  EXPECT_THAT(Matches("\\p{Han}", "\U00031350"), ElementsAre("\U00031350"));
  EXPECT_THAT(Matches("\\p{Nd}", "\U00010D40"), ElementsAre("\U00010D40"));
}

TEST(RegexTest, WordCharactersAreOnigurumas) {
  EXPECT_THAT(Matches("\\w+", "a\u0301_²x-"), ElementsAre("a\u0301_²x"));
  EXPECT_THAT(Matches("\\W", "a-"), ElementsAre("-"));
  EXPECT_THAT(Matches("\\bb", "ab b"), ElementsAre("b"));
}

TEST(RegexTest, LinesBeginAndEndAtNewlines) {
  EXPECT_THAT(Matches("^a", "a\na"), ElementsAre("a", "a"));
  EXPECT_THAT(Matches("a$", "a\na"), ElementsAre("a", "a"));
  EXPECT_THAT(Matches(".", "\n\r"), ElementsAre("\r"));
}

TEST(RegexTest, ScriptsAreScripts) {
  // U+3001 is used with Han, and is not of it.
  EXPECT_THAT(Matches("\\p{Han}", "、人"), ElementsAre("人"));
}

TEST(RegexTest, RewritesWhatDiffersInWriting) {
  EXPECT_THAT(TranslateRegex("a{,3}"), IsOkAndHolds(std::string("a{0,3}")));
  EXPECT_THAT(TranslateRegex("\\u0041\\v\\h"),
              IsOkAndHolds(std::string("\\x{0041}\\x{B}[0-9a-fA-F]")));
  EXPECT_THAT(TranslateRegex("a{b"), IsOkAndHolds(std::string("a\\{b")));
  EXPECT_THAT(TranslateRegex("[^\\s\\p{^Lu}]++"), IsOkAndHolds(std::string("[^\\s\\p{^Lu}]++")));
}

TEST(RegexTest, RefusesWhatMeansSomethingElse) {
  for (const char* pattern :
       {"a{2}+",   "a{2}?",    "a**",  "+a",    "(*ACCEPT)", "(?m)a",  "(?m:a)",      "a(?i)b",
        "(?<n>a)", "\\1",      "\\K",  "\\G",   "\\R",       "\\X",    "[[:alpha:]]", "[a-z&&[^b]]",
        "[]a]",    "\\p{Foo}", "\\pL", "\\p{L", "\\xFF",     "\\x{",   "\\u12",       "\\x{zz}",
        "[\\W]",   "[\\B]",    "a\\",  "[a",    "[a\\",      "\\Qa\\E"}) {
    EXPECT_THAT(TranslateRegex(pattern), StatusIs(absl::StatusCode::kInvalidArgument, "regular"))
        << pattern;
  }
}

TEST(RegexTest, NamesWhatCannotBeCompiled) {
  EXPECT_THAT(Regex::Create("("), StatusIs(absl::StatusCode::kInvalidArgument, "at byte 1"));
  EXPECT_THAT(Regex::Create(std::string(16'384, 'a')), IsOk());
  EXPECT_THAT(Regex::Create(std::string(16'385, 'a')),
              StatusIs(absl::StatusCode::kInvalidArgument, "16385 bytes"));
  EXPECT_THAT(Regex::Create(std::string(10'000, '(') + std::string(10'000, ')')),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Regex::Create("(?:(?:a{1,1000}){1,1000}){1,1000}"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(RegexTest, MatchingIsBounded) {
  const auto regex = Regex::Create("(?:a+)+[0-9]");
  ASSERT_THAT(regex, IsOk());
  RegexScratch scratch;
  EXPECT_THAT((*regex)->ForEachMatch(std::string(5000, 'a'), scratch, [](Regex::Match) {}),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(RegexTest, LongMatchesOfPublishedPatternsAreWithinIt) {
  // One match of 300,000 characters of each kind.
  for (const char* piece : {"a", " ", "é", "!", "\n", "人"}) {
    std::string text;
    for (int i = 0; i < 300'000; ++i) text += piece;
    EXPECT_THAT(Matches("[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
                        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
                        text),
                ElementsAre(text));
  }
}

}  // namespace
}  // namespace gantry
