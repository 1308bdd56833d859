#include "trainer/safetensors/shard_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ShardIndexTest, ComesBackAsItWasWritten) {
  const ShardIndex index = {{"a", "model-00001-of-00002.safetensors"},
                            {"b \"quoted\"", "model-00002-of-00002.safetensors"}};
  const std::string text = SerializeShardIndex(index, 1234);
  EXPECT_EQ(text, R"({
  "metadata": {
    "total_size": 1234
  },
  "weight_map": {
    "a": "model-00001-of-00002.safetensors",
    "b \"quoted\"": "model-00002-of-00002.safetensors"
  }
}
)");
  EXPECT_THAT(ParseShardIndex(text), IsOkAndHolds(index));
}

// Published files say all kinds of things about their sizes.
TEST(ShardIndexTest, MetadataIsNotRead) {
  const ShardIndex index = {{"a", "m.safetensors"}};
  for (const std::string_view metadata :
       {R"({})", R"({"total_size": 1.5e10})", R"({"total_size": "many"})", "null", "[1, 2]"}) {
    EXPECT_THAT(ParseShardIndex(
                    StrCat("{\"metadata\":", metadata, R"(,"weight_map":{"a":"m.safetensors"}})")),
                IsOkAndHolds(index))
        << metadata;
  }
  EXPECT_THAT(ParseShardIndex(R"({"weight_map":{"a":"m.safetensors"}})"), IsOkAndHolds(index));
}

TEST(ShardIndexTest, OtherTextIsRefused) {
  EXPECT_THAT(ParseShardIndex(""), StatusIs(kInvalid, "index: no JSON from byte 1 on"));
  EXPECT_THAT(ParseShardIndex("[]"), StatusIs(kInvalid, "not an object"));
  EXPECT_THAT(ParseShardIndex("{}"), StatusIs(kInvalid, "weight_map is missing"));
  EXPECT_THAT(ParseShardIndex(R"({"weight_map":[]})"), StatusIs(kInvalid, "not an object"));
  EXPECT_THAT(ParseShardIndex(R"({"weight_map":{}})"), StatusIs(kInvalid, "names no tensor"));
  EXPECT_THAT(ParseShardIndex(R"({"weight_map":{"a":1}})"),
              StatusIs(kInvalid, "index: weight_map.a is 1, not a text"));
  EXPECT_THAT(ParseShardIndex(R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})"),
              StatusIs(kInvalid, "key 'a' is there twice"));
  EXPECT_THAT(ParseShardIndex(
                  StrCat(R"({"weight_map":{")", std::string(1025, 'n'), R"(":"x.safetensors"}})")),
              StatusIs(kInvalid, "a name of 1025 bytes; the most is 1024"));
  const std::string deep(100, '[');
  EXPECT_THAT(ParseShardIndex(StrCat("{\"metadata\":", deep)), StatusIs(kInvalid, "deeper than 8"));
}

TEST(ShardIndexTest, NoNameLeadsOutOfTheFolder) {
  for (const std::string_view name :
       {"../x.safetensors", "../../x.safetensors", "/x.safetensors", "/etc/passwd",
        "a/b.safetensors", "./x.safetensors", "..", ".", "", ".safetensors", "x.bin",
        "x.safetensors/", "x.safetensors\\u0000", "..\\\\x.bin"}) {
    EXPECT_THAT(ParseShardIndex(StrCat(R"({"weight_map":{"a":")", name, R"("}})")),
                StatusIs(kInvalid, "not the name of a .safetensors file in the same folder"))
        << name;
  }
  const std::string longest(255 - 12, 'n');
  EXPECT_THAT(
      ParseShardIndex(StrCat(R"({"weight_map":{"a":")", longest, R"(.safetensors"}})")).status(),
      IsOk());
  EXPECT_THAT(ParseShardIndex(StrCat(R"({"weight_map":{"a":"n)", longest, R"(.safetensors"}})")),
              StatusIs(kInvalid, "not the name"));
}

TEST(ShardIndexTest, FilesAndBytesAreBounded) {
  std::string json = R"({"weight_map":{)";
  for (size_t i = 0; i <= kShardFilesMax; ++i) {
    json += StrCat(i == 0 ? "" : ",", "\"", i, "\":\"", i, ".safetensors\"");
  }
  EXPECT_THAT(ParseShardIndex(json + "}}"), StatusIs(kInvalid, "10001 files; the most is 10000"));
  const std::string large(static_cast<size_t>(kShardIndexBytesMax.count()) + 1, ' ');
  EXPECT_THAT(ParseShardIndex(large), StatusIs(kInvalid, "the most is"));
}

}  // namespace
}  // namespace gantry
