#include "trainer/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "trainer/tokenizer/encoding.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

// A vocabulary of characters; "ab", "abc" and "bc" by merging.
Json SmallFile() {
  return Json::parse(R"({
    "version": "1.0",
    "added_tokens": [
      {"id": 8, "content": "<s>", "special": true, "normalized": false},
      {"id": 9, "content": "<x>", "special": false, "normalized": false}
    ],
    "normalizer": null,
    "pre_tokenizer": null,
    "post_processor": {
      "type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [8], "tokens": ["<s>"]}}
    },
    "decoder": {"type": "Fuse"},
    "model": {
      "type": "BPE", "unk_token": "?",
      "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "?": 5, "bc": 6, "é": 7},
      "merges": ["b c", ["a", "b"], "ab c"]
    }
  })");
}

std::unique_ptr<Tokenizer> Parsed(const Json& file) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Parse(file.dump());
  GANTRY_CHECK_OK(tokenizer.status());
  return *std::move(tokenizer);
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, std::string_view text) {
  const absl::StatusOr<Encoding> encoding =
      tokenizer.Encode(text, {.add_special_tokens = false, .want_offsets = false});
  GANTRY_CHECK_OK(encoding.status());
  return encoding->ids;
}

std::vector<TextRange> Offsets(const Tokenizer& tokenizer, std::string_view text) {
  const absl::StatusOr<Encoding> encoding =
      tokenizer.Encode(text, {.add_special_tokens = false, .want_offsets = true});
  GANTRY_CHECK_OK(encoding.status());
  return encoding->offsets;
}

TEST(TokenizerTest, MergesByRankAndThenFromTheLeft) {
  const auto tokenizer = Parsed(SmallFile());
  EXPECT_THAT(Ids(*tokenizer, "abc"), ElementsAre(0, 6));
  EXPECT_THAT(Ids(*tokenizer, "abab"), ElementsAre(3, 3));
  EXPECT_THAT(Ids(*tokenizer, ""), IsEmpty());
  EXPECT_THAT(Ids(*tokenizer, "xé"), ElementsAre(5, 7));
}

TEST(TokenizerTest, AddsSpecialTokensOnRequestAndFindsThemInTexts) {
  const auto tokenizer = Parsed(SmallFile());
  const auto encoding = tokenizer->Encode("ab<s>", {.want_offsets = true});
  ASSERT_THAT(encoding, IsOk());
  EXPECT_THAT(encoding->ids, ElementsAre(8, 3, 8));
  EXPECT_THAT(encoding->offsets, ElementsAre(TextRange{0, 0}, TextRange{0, 2}, TextRange{2, 5}));
  EXPECT_THAT(Ids(*tokenizer, "a<x>b<"), ElementsAre(0, 9, 1, 5));
}

TEST(TokenizerTest, OffsetsAreBytesOfWholeCharacters) {
  const auto tokenizer = Parsed(SmallFile());
  EXPECT_THAT(Offsets(*tokenizer, "é€ab"),
              ElementsAre(TextRange{0, 2}, TextRange{2, 5}, TextRange{5, 7}));
}

TEST(TokenizerTest, BrokenUtf8IsReplacedAsPythonDoesIt) {
  Json file = SmallFile();
  file["model"]["vocab"]["\uFFFD"] = 8;
  file["added_tokens"] = Json::array();
  file["post_processor"] = nullptr;
  const auto tokenizer = Parsed(file);
  struct Case {
    std::string_view bytes;
    std::vector<TextRange> replaced;  // by U+FFFD
  };
  const Case cases[] = {
      {"\xFF", {{0, 1}}},
      {"\xC3", {{0, 1}}},
      {"\xE2\x82", {{0, 2}}},
      {"\xF0\x9F\x98", {{0, 3}}},
      {"\xED\xA0\x80", {{0, 1}, {1, 2}, {2, 3}}},  // a surrogate
      {"\xC0\xAF", {{0, 1}, {1, 2}}},              // over-long
      {"\xF4\x90\x80\x80", {{0, 1}, {1, 2}, {2, 3}, {3, 4}}},
      {"\xE2\x82\xE2\x82\xAC", {{0, 2}}},  // then a euro sign, which is unknown
  };
  for (const Case& c : cases) {
    const auto encoding = tokenizer->Encode(c.bytes, {.want_offsets = true});
    ASSERT_THAT(encoding, IsOk());
    std::vector<TextRange> replaced;
    for (size_t i = 0; i < encoding->ids.size(); ++i) {
      if (encoding->ids[i] == 8) replaced.push_back(encoding->offsets[i]);
    }
    EXPECT_EQ(replaced, c.replaced) << ::testing::PrintToString(c.bytes);
  }
}

TEST(TokenizerTest, KnowsItsTokens) {
  const auto tokenizer = Parsed(SmallFile());
  EXPECT_EQ(tokenizer->TokenId("abc"), 4);
  EXPECT_EQ(tokenizer->TokenId("<s>"), 8);
  EXPECT_EQ(tokenizer->TokenId("zz"), std::nullopt);
  EXPECT_EQ(tokenizer->TokenText(4), "abc");
  EXPECT_EQ(tokenizer->TokenText(9), "<x>");
  EXPECT_EQ(tokenizer->TokenText(10), "");
  EXPECT_EQ(tokenizer->TokenText(-1), "");
  EXPECT_EQ(tokenizer->vocabulary_size(), 10);
  EXPECT_TRUE(tokenizer->IsSpecial(8));
  EXPECT_FALSE(tokenizer->IsSpecial(9));
  EXPECT_FALSE(tokenizer->IsSpecial(-1));
  EXPECT_FALSE(tokenizer->IsSpecial(1 << 30));
  EXPECT_THAT(tokenizer->special_ids(), ElementsAre(8));
}

TEST(TokenizerTest, DecodesAndSkipsSpecialTokens) {
  const auto tokenizer = Parsed(SmallFile());
  const std::vector<int32_t> ids = {8, 0, 9, 6, -1, 77};
  EXPECT_EQ(tokenizer->Decode(ids, {}), "a<x>bc");
  EXPECT_EQ(tokenizer->Decode(ids, {.skip_special_tokens = false}), "<s>a<x>bc");
  EXPECT_EQ(tokenizer->Decode({}, {}), "");
}

TEST(TokenizerTest, VocabulariesMayHaveHoles) {
  Json file = SmallFile();
  file["model"]["vocab"]["c"] = 1000;
  file["model"]["vocab"]["z"] = 2;
  file["added_tokens"][0]["id"] = 9;
  file["added_tokens"][1]["id"] = 10;
  const auto tokenizer = Parsed(file);
  EXPECT_EQ(tokenizer->vocabulary_size(), 1001);
  EXPECT_EQ(tokenizer->TokenText(500), "");
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{500, 1000}, {}), "c");
}

TEST(StreamingDecoderTest, HandsOutWholeCharacters) {
  Json file = SmallFile();
  file["decoder"] = {{"type", "ByteLevel"}};
  // "ð", "Ł", "ĺ", "Ģ" are the bytes of U+1F600.
  file["model"]["vocab"] = {{"ð", 0}, {"Ł", 1}, {"ĺ", 2}, {"Ģ", 3}, {"Ġa", 4}};
  file["model"]["merges"] = Json::array();
  file["model"]["unk_token"] = nullptr;
  file["added_tokens"] = Json::array();
  file["post_processor"] = nullptr;
  const auto tokenizer = Parsed(file);
  StreamingDecoder decoder(*tokenizer, {});
  EXPECT_EQ(decoder.Next(4), " a");
  EXPECT_EQ(decoder.Next(0), "");
  EXPECT_EQ(decoder.Next(1), "");
  EXPECT_EQ(decoder.Next(2), "");
  EXPECT_EQ(decoder.Next(3), "😀");
  EXPECT_EQ(decoder.Next(0), "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
  // As new, and broken in the middle.
  EXPECT_EQ(decoder.Next(0), "");
  EXPECT_EQ(decoder.Next(4), "\uFFFD a");
  EXPECT_EQ(decoder.Finish(), "");
}

TEST(StreamingDecoderTest, HoldsBytesUntilTheirRunEnds) {
  Json file = SmallFile();
  file["decoder"] = Json::parse(R"({"type": "Sequence", "decoders": [
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})");
  file["model"]["vocab"] = {{"<0xC3>", 0}, {"<0xA9>", 1}, {" a", 2}};
  file["model"]["merges"] = Json::array();
  file["model"]["unk_token"] = nullptr;
  file["added_tokens"] = Json::array();
  file["post_processor"] = nullptr;
  const auto tokenizer = Parsed(file);
  StreamingDecoder decoder(*tokenizer, {});
  EXPECT_EQ(decoder.Next(2), "a");
  EXPECT_EQ(decoder.Next(0), "");
  EXPECT_EQ(decoder.Next(1), "");
  EXPECT_EQ(decoder.Next(2), "é a");
  EXPECT_EQ(decoder.Next(0), "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
}

TEST(TokenizerTest, ACatastrophicExpressionIsAnError) {
  Json file = SmallFile();
  file["pre_tokenizer"] = Json::parse(
      R"({"type": "Split", "pattern": {"Regex": "(?:a+)+[0-9]"}, "behavior": "Isolated"})");
  const auto tokenizer = Parsed(file);
  EXPECT_THAT(tokenizer->Encode("aaa1", {}), IsOk());
  EXPECT_THAT(tokenizer->Encode(std::string(5000, 'a'), {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "regular expression gives up"));
  // The tokenizer goes on working.
  EXPECT_THAT(tokenizer->Encode("aaa1", {}), IsOk());
}

TEST(TokenizerTest, LongTextsWithoutAPreTokenizerTakeNoSquareOfTheirLength) {
  const auto tokenizer = Parsed(SmallFile());
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += "abc"[i % 3];
  const std::vector<int32_t> ids = Ids(*tokenizer, text);
  ASSERT_EQ(ids.size(), 200'000u);
  EXPECT_EQ(ids[0], 0);
  EXPECT_EQ(ids[1], 6);
}

TEST(TokenizerTest, AMissingUnknownTokenIsAnErrorOnlyWhenItIsNeeded) {
  Json file = SmallFile();
  file["model"]["unk_token"] = "<none>";
  const auto tokenizer = Parsed(file);
  EXPECT_THAT(tokenizer->Encode("abc", {}), IsOk());
  EXPECT_THAT(tokenizer->Encode("abx", {}), StatusIs(absl::StatusCode::kInvalidArgument, "<none>"));
}

struct Change {
  std::string_view place;  // a JSON pointer
  std::string_view value;
  std::vector<std::string_view> message;
};

TEST(TokenizerTest, RefusesFilesThatItCannotFollow) {
  const Change changes[] = {
      {"/model/type", "\"WordPiece\"", {"model is", "'WordPiece' is not supported"}},
      {"/model/type", "\"Unigram\"", {"'Unigram' is not supported"}},
      {"/model/type", "7", {"model.type is 7", "must be a text"}},
      {"/model", "null", {"model is missing"}},
      {"/model", "[]", {"model", "must be an object"}},
      {"/model/vocab", "{}", {"model.vocab", "must not be empty"}},
      {"/model/vocab", "[]", {"model.vocab", "must be an object"}},
      {"/model/vocab/a", "1", {"model.vocab", "is 1", "the id of the token"}},
      {"/model/vocab/a", "-1", {"model.vocab[\"a\"] is -1", "from 0 to"}},
      {"/model/vocab/a", "3000000000", {"model.vocab[\"a\"] is 3000000000"}},
      {"/model/vocab/a", "70000", {"model.vocab[\"a\"] is 70000", "from 0 to 65567"}},
      {"/model/vocab/a", "0.5", {"must be an integer"}},
      {"/model/merges", "null", {"model.merges is missing"}},
      {"/model/merges/0", "\"b d\"", {"model.merges[0] is", "'d' is not in the vocabulary"}},
      {"/model/merges/0", "\"c c\"", {"'cc' is not in the vocabulary"}},
      {"/model/merges/0", "\"bc\"", {"two tokens with a space"}},
      {"/model/merges/0", "\"a b c\"", {"two tokens with a space"}},
      {"/model/merges/1", "[\"a\"]", {"model.merges[1]", "must be two tokens"}},
      {"/model/merges/1", "[\"a\", 1]", {"model.merges[1][1] is 1"}},
      {"/model/dropout", "0.1", {"model.dropout is 0.1", "not supported"}},
      {"/model/byte_fallback", "1", {"model.byte_fallback is 1", "true or false"}},
      {"/model/continuing_subword_prefix", "\"####\"", {"shorter than the prefix"}},
      {"/added_tokens", "{}", {"added_tokens", "must be a list"}},
      {"/added_tokens/0/id", "9", {"added_tokens[1]", "its id is there twice"}},
      {"/added_tokens/1/content", "\"<s>\"", {"added_tokens[1]", "content is there twice"}},
      {"/added_tokens/0/content", "\"\"", {"added_tokens[0].content", "must not be empty"}},
      {"/added_tokens/1/id", "12", {"its id is 12, and it must be 9"}},
      {"/added_tokens/0/content", "\"ab\"", {"its id is 8, and it must be 3"}},
      {"/normalizer", R"({"type": "Precompiled"})", {"normalizer", "'Precompiled' is not"}},
      {"/normalizer", R"({"type": "Nmt"})", {"'Nmt' is not supported"}},
      {"/normalizer",
       R"({"type": "Sequence", "normalizers": [{"type": "X"}]})",
       {"normalizer.normalizers[0]", "'X' is not supported"}},
      {"/normalizer",
       R"({"type": "Replace", "pattern": {"String": ""}, "content": "a"})",
       {"normalizer.pattern.String", "must not be empty"}},
      {"/normalizer",
       R"({"type": "Replace", "pattern": {"Regex": "("}, "content": "a"})",
       {"normalizer.pattern.Regex", "parenthesis"}},
      {"/normalizer", R"({"type": "Prepend"})", {"normalizer.prepend is missing"}},
      {"/pre_tokenizer", R"({"type": "UnicodeScripts"})", {"'UnicodeScripts' is not supported"}},
      {"/pre_tokenizer",
       R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "All"})",
       {"pre_tokenizer.behavior", "Isolated"}},
      {"/pre_tokenizer",
       R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]})",
       {"pre_tokenizer.pretokenizers[1]", "after ByteLevel"}},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})", {"one character"}},
      {"/pre_tokenizer",
       R"({"type": "Metaspace", "prepend_scheme": "last"})",
       {"always, first or never"}},
      {"/post_processor", R"({"type": "Other"})", {"post_processor", "'Other' is not supported"}},
      {"/post_processor/special_tokens", "{}", {"post_processor.special_tokens.<s> is missing"}},
      {"/post_processor/special_tokens/<s>/ids/0",
       "10",
       {"post_processor.special_tokens.<s>.ids[0] is 10", "from 0 to 9"}},
      {"/post_processor/single/1/Sequence/id", "\"B\"", {"only A"}},
      {"/decoder", R"({"type": "CTC"})", {"decoder", "'CTC' is not supported"}},
      {"/decoder",
       R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})",
       {"decoder.start is -1"}},
  };
  for (const Change& change : changes) {
    Json file = SmallFile();
    file[Json::json_pointer(std::string(change.place))] = Json::parse(change.value);
    const auto tokenizer = Tokenizer::Parse(file.dump());
    ASSERT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument)
        << change.place << " = " << change.value;
    for (const std::string_view part : change.message) {
      EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(std::string(part)))
          << change.place << " = " << change.value;
    }
    EXPECT_EQ(tokenizer.status().message().find('\n'), std::string::npos);
  }
}

TEST(TokenizerTest, RefusesWhatIsNoFile) {
  EXPECT_THAT(Tokenizer::Parse(""), StatusIs(absl::StatusCode::kInvalidArgument, "no JSON"));
  EXPECT_THAT(Tokenizer::Parse("{\"model\":"),
              StatusIs(absl::StatusCode::kInvalidArgument, "no JSON from byte"));
  // What stands behind a zero byte must not be overlooked.
  EXPECT_THAT(Tokenizer::Parse(std::string_view("{}\0{", 4)),
              StatusIs(absl::StatusCode::kInvalidArgument, "no JSON from byte 3 on: a zero byte"));
  EXPECT_THAT(Tokenizer::Parse("[]"),
              StatusIs(absl::StatusCode::kInvalidArgument, "must be an object"));
  EXPECT_THAT(Tokenizer::Parse("{\"a\": \"\xFF\"}"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Tokenizer::Parse(R"({"model": {"vocab": {"a": 0, "a": 1}}})"),
              StatusIs(absl::StatusCode::kInvalidArgument, "'a' is there twice"));
  EXPECT_THAT(Tokenizer::Parse(std::string(1'000'000, '[')),
              StatusIs(absl::StatusCode::kInvalidArgument, "nested deeper than 32"));
  std::string many = "[0";
  for (int i = 0; i < 8'000'000; ++i) many += ",0";
  EXPECT_THAT(Tokenizer::Parse(many + "]"),
              StatusIs(absl::StatusCode::kInvalidArgument, "more than 8000000 values"));
}

TEST(TokenizerTest, LoadNamesTheFile) {
  PosixFileCalls files;
  EXPECT_THAT(Tokenizer::Load(files, "/nowhere"),
              StatusIs(absl::StatusCode::kNotFound, "/nowhere/tokenizer.json"));
  EXPECT_THAT(Tokenizer::Load(files, "trainer/tokenizer/testdata/gpt2.json"), IsOk());
  EXPECT_THAT(Tokenizer::Load(files, "trainer/tokenizer/testdata/goldens.json"),
              StatusIs(absl::StatusCode::kNotFound, "goldens.json"));
}

}  // namespace
}  // namespace gantry
