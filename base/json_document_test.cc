#include "base/json_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr JsonDocument::Limits kLimits = {
    .what = "thing file", .text_bytes_max = 64, .depth_max = 3, .values_max = 9};

absl::StatusOr<JsonDocument> Parse(std::string_view text) {
  return JsonDocument::Parse(text, kLimits);
}

TEST(JsonDocumentTest, SizeDepthAndCountAreBounded) {
  EXPECT_THAT(Parse(StrCat("1", std::string(63, ' '))), IsOk());
  EXPECT_THAT(Parse(StrCat("1", std::string(64, ' '))),
              StatusIs(kInvalid, "thing file: it has 65 bytes; the most is 64"));
  EXPECT_THAT(Parse("[[[1]]]"), IsOk());
  EXPECT_THAT(Parse("[[{\"a\": 1}]]"), IsOk());
  EXPECT_THAT(Parse("[[[[]]]]"), StatusIs(kInvalid, "nested deeper than 3"));
  EXPECT_THAT(Parse("[[{\"a\": {}}]]"), StatusIs(kInvalid, "nested deeper than 3"));
  EXPECT_THAT(Parse("[1,2,3,4,5,6,7,8]"), IsOk());
  EXPECT_THAT(Parse("[1,2,3,4,5,6,7,8,9]"), StatusIs(kInvalid, "more than 9 values"));
  EXPECT_THAT(Parse("[[],[],[],[],[],[],[],[],[]]"), StatusIs(kInvalid, "more than 9 values"));
}

TEST(JsonDocumentTest, DeepTextDoesNotOverflowTheStack) {
  const std::string deep(1 << 20, '[');
  EXPECT_THAT(JsonDocument::Parse(deep, {.what = "thing file",
                                         .text_bytes_max = size_t{1} << 21,
                                         .depth_max = 8,
                                         .values_max = 100}),
              StatusIs(kInvalid, "nested deeper than 8"));
}

TEST(JsonDocumentTest, OtherTextIsRefused) {
  EXPECT_THAT(Parse(""), StatusIs(kInvalid, "thing file: no JSON from byte 1 on"));
  EXPECT_THAT(Parse("[1, 2"), StatusIs(kInvalid, "no JSON from byte 6 on"));
  EXPECT_THAT(Parse("[1] 2"), StatusIs(kInvalid, "no JSON from byte 5 on"));
  EXPECT_THAT(Parse("{\"a\": 1, \"a\": 1}"), StatusIs(kInvalid, "key 'a' is there twice"));
  EXPECT_THAT(Parse("1e999"), StatusIs(kInvalid, "no JSON"));
  EXPECT_THAT(Parse("\"\xff\""), StatusIs(kInvalid, "no JSON"));
  EXPECT_THAT(Parse(std::string("[1]\0[2]", 7)), StatusIs(kInvalid, "from byte 4 on: a zero byte"));
  EXPECT_THAT(Parse(R"({"\u001b": 1, "\u001b": 1})"), StatusIs(kInvalid, R"(key '\u001b' is)"));
}

// The path and the value of what is wrong, for each kind of value.
TEST(JsonNodeTest, ErrorsNameTheField) {
  const absl::StatusOr<JsonDocument> document = JsonDocument::Parse(
      R"({"a": {"b": [1, -5, 1.5, "x"]}, "row": [7, true]})",
      {.what = "thing file", .text_bytes_max = 1000, .depth_max = 8, .values_max = 100});
  ASSERT_THAT(document, IsOk());
  const JsonNode root = document->root();
  const auto a = root.Member("a");
  ASSERT_THAT(a, IsOk());
  const auto b = a->Member("b");
  ASSERT_THAT(b, IsOk());
  EXPECT_THAT(b->ListSize(), IsOkAndHolds(4u));
  EXPECT_THAT(b->At(0).Integer({.least = 1, .most = 1}), IsOkAndHolds(1));
  EXPECT_THAT(b->At(1).Integer({}),
              StatusIs(kInvalid, "thing file: a.b[1] is -5, outside [0, 9007199254740992]"));
  EXPECT_THAT(b->At(2).Integer({}), StatusIs(kInvalid, "a.b[2] is 1.5, not an integer"));
  EXPECT_THAT(b->At(2).Real({.least = 1.5, .most = 2.0}), IsOkAndHolds(1.5));
  EXPECT_THAT(b->At(2).Real({.least = 1.6, .most = 2.0}), StatusIs(kInvalid, "outside [1.6, 2]"));
  EXPECT_THAT(b->At(3).Integer({}), StatusIs(kInvalid, "a.b[3] is \"x\", not an integer"));
  EXPECT_THAT(b->At(3).Real({.least = 0.0, .most = 1.0}), StatusIs(kInvalid, "not a number"));
  EXPECT_THAT(b->At(3).Text(), IsOkAndHolds("x"));
  EXPECT_THAT(b->At(0).Text(), StatusIs(kInvalid, "a.b[0] is 1, not a text"));
  EXPECT_THAT(b->At(0).Flag(), StatusIs(kInvalid, "a.b[0] is 1, neither true nor false"));
  EXPECT_THAT(b->At(0).ListSize(), StatusIs(kInvalid, "a.b[0] is 1, not a list"));
  EXPECT_THAT(b->ExpectListOf(3), StatusIs(kInvalid, "a.b is a list of 4, not a list of 3"));
  EXPECT_THAT(b->ExpectObject(), StatusIs(kInvalid, "a.b is a list of 4, not an object"));
  EXPECT_THAT(a->ListSize(), StatusIs(kInvalid, "a is an object, not a list"));
  const auto row = root.Member("row");
  ASSERT_THAT(row, IsOk());
  EXPECT_THAT(row->Field(0, "size").Text(), StatusIs(kInvalid, "thing file: row.size is 7"));
  EXPECT_THAT(row->Field(1, "flag").Flag(), IsOkAndHolds(true));
}

TEST(JsonNodeTest, LargeIntegersAreRefused) {
  const struct {
    const char* text;
    bool good;
  } cases[] = {{"9007199254740992", true},      {"9007199254740993", false},
               {"-9007199254740993", false},    {"18446744073709551615", false},
               {"18446744073709551616", false}, {"-9223372036854775808", false},
               {"-9223372036854775809", false}, {"1e20", false},
               {"9007199254740992.0", false}};
  for (const auto& c : cases) {
    const absl::StatusOr<JsonDocument> document = Parse(c.text);
    ASSERT_THAT(document, IsOk());
    const auto number =
        document->root().Integer({.least = -kJsonIntegerMax, .most = kJsonIntegerMax});
    EXPECT_EQ(number.ok(), c.good) << c.text;
  }
}

TEST(JsonNodeTest, UnknownKeysNameTheNearest) {
  constexpr std::array<std::string_view, 2> kKeys = {"tokens", "names"};
  const auto expect = [&](std::string_view text) {
    const absl::StatusOr<JsonDocument> document = Parse(text);
    EXPECT_THAT(document, IsOk());
    return document->root().ExpectKeys(kKeys);
  };
  EXPECT_THAT(expect("{}"), IsOk());
  EXPECT_THAT(expect(R"({"names": 1, "tokens": 2})"), IsOk());
  EXPECT_THAT(expect(R"({"tokns": 1})"),
              StatusIs(kInvalid, "thing file: tokns is not known; did you mean 'tokens'?"));
  EXPECT_THAT(expect(R"({"something": 1})"),
              StatusIs(kInvalid, "something is not known; known are tokens, names"));
  EXPECT_THAT(expect("[]"), StatusIs(kInvalid, "the file is a list of 0, not an object"));
}

TEST(JsonDocumentTest, FormatAndVersionAreExact) {
  const auto expect = [](std::string_view text) {
    const absl::StatusOr<JsonDocument> document = Parse(text);
    EXPECT_THAT(document, IsOk());
    return document->ExpectFormat("thing", 1);
  };
  EXPECT_THAT(expect(R"({"format": "thing", "version": 1, "more": 2})"), IsOk());
  EXPECT_THAT(expect(R"({"format": "thing", "version": 2})"),
              StatusIs(kInvalid, "version is 2, but this program reads version 1 only"));
  EXPECT_THAT(expect(R"({"format": "other", "version": 1})"),
              StatusIs(kInvalid, "format is \"other\", not \"thing\""));
  EXPECT_THAT(expect(R"({"version": 1})"), StatusIs(kInvalid, "format is missing"));
  EXPECT_THAT(expect(R"({"format": "thing"})"), StatusIs(kInvalid, "version is missing"));
  EXPECT_THAT(expect(R"({"format": "thing", "version": "1"})"), StatusIs(kInvalid, "version is"));
  EXPECT_THAT(expect("7"), StatusIs(kInvalid, "the file is 7, not an object"));
}

TEST(JsonQuotedTest, EscapesAndReplaces) {
  EXPECT_EQ(JsonQuoted("a\"b\n"), R"("a\"b\n")");
  EXPECT_EQ(JsonQuoted("\xff"), "\"\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace gantry
