#include "trainer/cli/yaml_entries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/random.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using ::testing::IsEmpty;

// "key=value,value@line ..." of the entries.
std::string Flat(std::string_view text) {
  const auto entries = ReadYamlEntries(text, "t");
  if (!entries.ok()) return std::string(FromAbsl(entries.status().message()));
  std::string flat;
  for (const YamlEntry& entry : *entries) {
    flat += StrCat(flat.empty() ? "" : " ", entry.key, "=");
    for (size_t i = 0; i < entry.values.size(); ++i) {
      flat += StrCat(i == 0 ? "" : ",", entry.values[i]);
    }
    flat += StrCat("@", entry.line);
  }
  return flat;
}

TEST(YamlEntries, FlattensSections) {
  EXPECT_EQ(Flat("a:\n  b: 1\n  c: two\nd: {e: 3, f: '4'}\n"), "a.b=1@2 a.c=two@3 d.e=3@4 d.f=4@4");
  EXPECT_EQ(Flat("# comment\na.b: 1\ntop: 2\n"), "a.b=1@2 top=2@3");
  EXPECT_EQ(Flat("a:\n  b: [x, 'y z', 3]\n  c:\n  - q\n  - r\n  d: []\n"),
            "a.b=x,y z,3@2 a.c=q,r@3 a.d=@6");
  EXPECT_EQ(Flat("a: {b: \"\"}"), "a.b=@1");
  EXPECT_EQ(Flat("a:\n  b:\n  - {c: 1, d: x y}\n  - z\n  - e: '2'\n  f: 3\n"),
            "a.b=c=1;d=x y,z,e=2@2 a.f=3@6");
}

TEST(YamlEntries, NothingIsAnEmptyConfig) {
  for (const char* text : {"", "\n\n", "# only a comment\n", "---\n", "{}"}) {
    SCOPED_TRACE(text);
    const auto entries = ReadYamlEntries(text, "t");
    ASSERT_THAT(entries, IsOk());
    EXPECT_THAT(*entries, IsEmpty());
  }
}

TEST(YamlEntries, SaysWhereItIsWrong) {
  struct Case {
    const char* text;
    const char* message;
  };
  const Case cases[] = {
      {"a:\n  b: 1\n  b: 2\n", "t:3: a.b is set twice"},
      {"a.b: 1\na:\n  b: 2\n", "t:3: a.b is set twice"},
      {"a:\n  b:\n", "t:2: a.b has no value"},
      {"a:\n", "t:1: a has no value"},
      {"a:\n  b: ~\n", "t:2: a.b has no value"},
      {"a:\n  b: &x 1\n", "t:2: anchors are not supported (&x)"},
      {"a: {b: 1}\nc: *x\n", "t:2: the referenced anchor is not defined"},
      {"a: {b: !!int 1}\n", "t:1: tags are not supported (tag:yaml.org,2002:int)"},
      {"a:\n  b:\n    c: 1\n", "t:3: nested too deep: expected sections with keys and values"},
      {"a: {b: [[1]]}\n", "t:1: a list is not expected here"},
      {"a: {b: [{c: {d: 1}}]}\n", "t:1: nested too deep: expected sections with keys and values"},
      {"a: {b: [{c: [1]}]}\n", "t:1: a list is not expected here"},
      {"a: {b: [{c: }]}\n", "t:1: a.b has no value"},
      {"a: {b: [{c: ''}]}\n", "t:1: an empty key or value"},
      {"a: {b: [{c=d: 1}]}\n", "t:1: '=' cannot stand in a key"},
      {"a: {b: [{c: 1;2}]}\n", "t:1: ';' cannot stand here"},
      {"- a\n", "t:1: a list is not expected here"},
      {"word\n", "t:1: expected sections with keys and values"},
      {"a: {b: 1}\n---\nc: {d: 2}\n", "t: holds several documents; one is expected"},
      {"a:\n\tb: 1\n", "t:2: illegal map value"},
      {"a: [1, 2\n", "t:1: a has no value"},
      {"a: {b: 1}}\n", "t:1: illegal flow end"},
      {"? [k]\n: 1\n", "t:1: a list is not expected here"},
      {"'': 1\n", "t:1: an empty key"},
  };
  for (const Case& item : cases) {
    SCOPED_TRACE(item.text);
    EXPECT_THAT(ReadYamlEntries(item.text, "t"), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(Flat(item.text), item.message);
  }
}

TEST(YamlEntries, BoundsWhatItFollows) {
  EXPECT_EQ(Flat(std::string(100000, '[')), "t:1: nested too deep");
  EXPECT_EQ(Flat(std::string(100000, '{')), "t:1: nested too deep");
  std::string compact;
  for (int i = 0; i < 50000; ++i) compact += "- ";
  EXPECT_EQ(Flat(compact), "t:1: nested too deep");
  std::string deep;
  for (int i = 0; i < 600; ++i) deep += StrCat(std::string(static_cast<size_t>(i), ' '), "a:\n");
  EXPECT_EQ(Flat(deep), "t:202: nested too deep");
  EXPECT_EQ(Flat(std::string((1 << 20) + 1, ' ')),
            "t: a config of 1048577 bytes, more than 1.0 MiB");
  EXPECT_EQ(Flat(std::string_view("a: \0", 4)), "t: is no text: it holds a zero byte");
  // The classic: nine levels of nine references each.
  std::string bomb = "a: &a [lol, lol]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    bomb += StrCat(c, ": &", c, " [");
    for (int i = 0; i < 9; ++i) bomb += StrCat(i == 0 ? "" : ", ", "*", static_cast<char>(c - 1));
    bomb += "]\n";
  }
  EXPECT_EQ(Flat(bomb), "t:1: anchors are not supported (&a)");
}

// Damaged texts give entries or an error, never a crash or an exception.
TEST(YamlEntries, SurvivesDamage) {
  constexpr uint64_t kSeed = 31337;
  SCOPED_TRACE(kSeed);
  const Random random({.seed = kSeed, .stream = 0});
  const std::string good =
      "model: {layers: 2, width: 64}\ndata:\n  files: [\"a\\n\", 'b']\n  seed: 3\n# end\n";
  constexpr std::string_view kSpecial = "{}[]:,-?&*!|>'\"%@`#\n\t \\\xff\xc3~.0";
  uint64_t index = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    const int64_t edits = 1 + random.Below(4, index++);
    for (int64_t i = 0; i < edits; ++i) {
      const auto at = static_cast<size_t>(random.Below(std::ssize(text), index++));
      const char c = kSpecial[static_cast<size_t>(random.Below(std::ssize(kSpecial), index++))];
      switch (random.Below(3, index++)) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, 1, c);
          break;
        default:
          text.erase(at, 1 + static_cast<size_t>(random.Below(5, index++)));
      }
      if (text.empty()) text = "x";
    }
    const auto entries = ReadYamlEntries(text, "t");
    if (!entries.ok()) {
      ASSERT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument) << text;
    }
  }
}

}  // namespace
}  // namespace gantry
