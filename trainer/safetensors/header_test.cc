// Goal: what is accepted is consistent, everything else is refused with a line that names what is
// wrong, in bounded time, and what is written is what the reference implementation writes.
#include "trainer/safetensors/header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "trainer/safetensors/stored_dtype.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

std::string Reference() {
  PosixFileCalls files;
  const auto bytes =
      ReadFileToString(files, "trainer/safetensors/testdata/reference.safetensors", 1_MiB);
  GANTRY_CHECK_OK(bytes.status());
  return *bytes;
}

// Of the JSON of a header: two tensors, eight bytes and four.
constexpr std::string_view kTwo = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                  R"("b":{"dtype":"BF16","shape":[1,2],"data_offsets":[8,12]}})";

TEST(SafetensorsHeaderTest, ReadsNamesTypesShapesAndOffsets) {
  const auto header = ParseSafetensorsHeader(kTwo, 12);
  ASSERT_THAT(header, IsOk());
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[0].dtype, StoredDType::kF32);
  EXPECT_THAT(header->tensors[0].shape, ElementsAre(2));
  EXPECT_EQ(header->tensors[1].offset, 8);
  EXPECT_EQ(header->tensors[1].bytes, 4);
  EXPECT_THAT(header->metadata, IsEmpty());
}

TEST(SafetensorsHeaderTest, TensorsAreSortedByOffset) {
  const auto header =
      ParseSafetensorsHeader(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
                             R"("empty":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},)"
                             R"("a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})",
                             2);
  ASSERT_THAT(header, IsOk());
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[1].name, "empty");
  EXPECT_EQ(header->tensors[2].name, "b");
}

TEST(SafetensorsHeaderTest, NoTensorsAndPaddingAreFine) {
  EXPECT_THAT(ParseSafetensorsHeader("{}", 0), IsOk());
  EXPECT_THAT(ParseSafetensorsHeader("{}      ", 0), IsOk());
  const auto header = ParseSafetensorsHeader(R"({"__metadata__":{"format":"pt","x":""}})", 0);
  ASSERT_THAT(header, IsOk());
  EXPECT_EQ(header->metadata, (StoredMetadata{{"format", "pt"}, {"x", ""}}));
}

TEST(SafetensorsHeaderTest, WritesTheBytesOfTheReferenceImplementation) {
  const std::string file = Reference();
  const auto json_bytes = static_cast<size_t>(static_cast<unsigned char>(file[0])) +
                          256 * static_cast<size_t>(static_cast<unsigned char>(file[1]));
  const std::string_view json = std::string_view(file).substr(8, json_bytes);
  const auto header =
      ParseSafetensorsHeader(json, static_cast<int64_t>(file.size() - 8 - json_bytes));
  ASSERT_THAT(header, IsOk());
  EXPECT_EQ(header->tensors.size(), 23u);
  const auto text = SerializeSafetensorsHeader(*header);
  ASSERT_THAT(text, IsOk());
  EXPECT_EQ(*text, file.substr(0, 8 + json_bytes));
}

TEST(SafetensorsHeaderTest, EveryTypeHasItsSize) {
  for (int i = 0; i < kStoredDTypeCount; ++i) {
    const auto dtype = static_cast<StoredDType>(i);
    EXPECT_EQ(FindStoredDType(Name(dtype)), dtype);
    const std::vector<int64_t> shape = {8};
    EXPECT_EQ(StoredBytes(dtype, shape).value(), BitsOf(dtype)) << Name(dtype);
  }
  EXPECT_EQ(FindStoredDType("f32"), std::nullopt);
  EXPECT_EQ(FindStoredDType(""), std::nullopt);
}

struct Malformed {
  std::string json;
  int64_t data_bytes;
  std::string_view message;
};

std::string Tensor(std::string_view fields) { return StrCat("{\"a\":{", fields, "}}"); }

TEST(SafetensorsHeaderTest, MalformedHeadersAreNamed) {
  const std::vector<Malformed> table = {
      {"", 0, "does not begin with '{'"},
      {" {}", 0, "does not begin with '{'"},
      {"[]", 0, "does not begin with '{'"},
      {"{", 0, "no JSON from byte 2 on"},
      {"{} x", 0, "no JSON from byte 4 on"},
      {std::string("{}\0x", 4), 0, "from byte 3 on: a zero byte"},
      {"{\"\xff\":1}", 0, "no JSON"},
      {R"({"a":1})", 0, "'a' is the number 1, not an object"},
      {R"({"a":[]})", 0, "'a' is a list, not an object"},
      {R"({"a":null})", 0, "'a' is null, not an object"},
      {R"({"a\u001b[31m":1})", 0, R"('a\u001b[31m' is)"},
      {R"({"__metadata__":1})", 0, "'__metadata__' is the number 1"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__ holds the number 1; it must hold texts"},
      {R"({"__metadata__":{"a":{}}})", 0, "__metadata__ holds an object"},
      {R"({"__metadata__":{"a":"","a":""}})", 0, "__metadata__: 'a' is there twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__ is there twice"},
      {Tensor(""), 0, "tensor 'a': dtype is missing"},
      {Tensor(R"("dtype":"U8")"), 0, "tensor 'a': shape is missing"},
      {Tensor(R"("dtype":"U8","shape":[])"), 0, "tensor 'a': data_offsets is missing"},
      {Tensor(R"("dtype":"U8","shape":[],"x":1)"), 0, "'x' is not known; known are dtype, shape"},
      {Tensor(R"("dtype":"U8","dtype":"U8")"), 0, "dtype is there twice"},
      {Tensor(R"("shape":[],"shape":[])"), 0, "shape is there twice"},
      {Tensor(R"("data_offsets":[],"data_offsets":[])"), 0, "data_offsets is there twice"},
      {Tensor(R"("dtype":"float32")"), 0, "dtype is 'float32'; it must be one of BOOL, F4, "},
      {Tensor(R"("dtype":1)"), 0, "dtype is the number 1, not a text"},
      {Tensor(R"("dtype":[])"), 0, "dtype is a list, not a text"},
      {Tensor(R"("shape":"2")"), 0, "shape is a text, not a list"},
      {Tensor(R"("shape":{})"), 0, "shape is an object, not a list"},
      {Tensor(R"("shape":[-1])"), 0, "shape holds the number -1; it must hold integers from 0"},
      {Tensor(R"("shape":[1.0])"), 0, "shape holds the number 1.0;"},
      {Tensor(R"("shape":[1e3])"), 0, "shape holds the number 1e3;"},
      {Tensor(R"("shape":[9223372036854775808])"), 0, "shape holds the number 922337203685477580"},
      {Tensor(R"("shape":[18446744073709551616])"), 0, "shape holds the number 184467440737095516"},
      {Tensor(R"("shape":[true])"), 0, "shape holds true or false"},
      {Tensor(R"("shape":[[1]])"), 0, "shape holds a list"},
      {Tensor(R"("data_offsets":[{}])"), 0, "data_offsets holds an object"},
      {Tensor(R"("data_offsets":[0,1,2])"), 0, "data_offsets has more than 2 numbers"},
      {Tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0])"), 1, "data_offsets are [0]; they"},
      {Tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])"), 1, "data_offsets are [1, 0];"},
      {Tensor(R"("dtype":"U8","shape":[2],"data_offsets":[0,1])"), 1,
       "U8 [2] is 2 bytes, but data_offsets hold 1"},
      {Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])"), 8,
       "F32 [1] is 4 bytes, but data_offsets hold 8"},
      {Tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])"), 1,
       "elements of F4 must fill whole bytes"},
      {Tensor(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0,
       "shape is [4294967296, 4294967296], which is no number of elements"},
      {Tensor(R"("dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0])"), 0,
       "which is no number of elements"},
      {Tensor(R"("dtype":"F64","shape":[1152921504606846976],"data_offsets":[0,0])"), 0,
       "more bytes than a file can have"},
      // Offsets
      {Tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])"), 2,
       "'a' begins at byte 1 of the data, where the one before it ends at 0: there is a hole"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "'b' begins at byte 1 of the data, where the one before it ends at 2: they overlap"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1, "they overlap"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "tensor 'a' is there twice"},
      {std::string(kTwo), 11, "end at byte 12 of the data, the file at 11: it was cut short"},
      {std::string(kTwo), 13, "the file at 13: what follows is no tensor's"},
      {"{}", 1, "the tensors end at byte 0 of the data, the file at 1"},
      {Tensor(R"("dtype":"U8","shape":[9223372036854775807],)"
              R"("data_offsets":[0,9223372036854775807])"),
       8, "more bytes than a file can have"},
      {Tensor(R"("dtype":"U8","shape":[0],"data_offsets":[9223372036854775807,)"
              R"(9223372036854775807])"),
       8, "there is a hole"},
  };
  for (const Malformed& row : table) {
    const auto header = ParseSafetensorsHeader(row.json, row.data_bytes);
    EXPECT_THAT(header, StatusIs(kInvalid, std::string(row.message))) << row.json;
    EXPECT_EQ(header.status().message().find('\n'), std::string::npos);
    EXPECT_EQ(header.status().message().find('\x1b'), std::string::npos);
  }
}

TEST(SafetensorsHeaderTest, NestingIsRefusedAtOnce) {
  const std::string deep(1 << 20, '[');
  EXPECT_THAT(ParseSafetensorsHeader("{\"a\":" + deep, 0), StatusIs(kInvalid, "'a' is a list"));
  std::string objects = "{";
  for (int i = 0; i < 100'000; ++i) objects += "\"a\":{";
  EXPECT_THAT(ParseSafetensorsHeader(objects, 0), StatusIs(kInvalid, "'a' is not known"));
}

std::string ManyTensors(int64_t count) {
  std::string json = "{";
  for (int64_t i = 0; i < count; ++i) {
    json += StrCat(i == 0 ? "" : ",", "\"", i, R"(":{"dtype":"U8","shape":[],"data_offsets":[)", i,
                   ",", i + 1, "]}");
  }
  return json + "}";
}

TEST(SafetensorsHeaderTest, ThereAreLimits) {
  EXPECT_THAT(ParseSafetensorsHeader(ManyTensors(kStoredTensorsMax), kStoredTensorsMax), IsOk());
  EXPECT_THAT(ParseSafetensorsHeader(ManyTensors(kStoredTensorsMax + 1), kStoredTensorsMax + 1),
              StatusIs(kInvalid, "it has more than 262144 tensors"));

  const auto named = [](size_t bytes) {
    return StrCat("{\"", std::string(bytes, 'n'),
                  R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})");
  };
  EXPECT_THAT(ParseSafetensorsHeader(named(kStoredNameBytesMax), 0), IsOk());
  EXPECT_THAT(ParseSafetensorsHeader(named(kStoredNameBytesMax + 1), 0),
              StatusIs(kInvalid, "has 1025 bytes; the most is 1024"));

  const auto of_rank = [](size_t rank) {
    std::string shape;
    for (size_t i = 0; i < rank; ++i) shape += i == 0 ? "1" : ",1";
    return Tensor(StrCat(R"("dtype":"U8","shape":[)", shape, R"(],"data_offsets":[0,1])"));
  };
  EXPECT_THAT(ParseSafetensorsHeader(of_rank(kStoredRankMax), 1), IsOk());
  EXPECT_THAT(ParseSafetensorsHeader(of_rank(kStoredRankMax + 1), 1),
              StatusIs(kInvalid, "shape has more than 32 numbers"));

  std::string metadata = "{\"__metadata__\":{";
  for (size_t i = 0; i <= kStoredMetadataMax; ++i) {
    metadata += StrCat(i == 0 ? "" : ",", "\"", i, "\":\"\"");
  }
  EXPECT_THAT(ParseSafetensorsHeader(metadata + "}}", 0),
              StatusIs(kInvalid, "__metadata__ has more than 16384 entries"));
}

TEST(SafetensorsHeaderTest, TooLongTextIsNotRead) {
  std::string text(static_cast<size_t>(kSafetensorsHeaderBytesMax) + 1, ' ');
  text[0] = '{';
  text[1] = '}';
  EXPECT_THAT(ParseSafetensorsHeader(text, 0), StatusIs(kInvalid, "the most is 100000000"));
  text.pop_back();
  EXPECT_THAT(ParseSafetensorsHeader(text, 0), IsOk());
}

TEST(SafetensorsHeaderTest, BytesOfShapes) {
  const auto bytes = [](StoredDType dtype, std::vector<int64_t> shape) {
    return StoredBytes(dtype, shape);
  };
  EXPECT_THAT(bytes(StoredDType::kF32, {}), IsOkAndHolds(4));
  EXPECT_THAT(bytes(StoredDType::kF32, {0}), IsOkAndHolds(0));
  EXPECT_THAT(bytes(StoredDType::kF6E2M3, {4}), IsOkAndHolds(3));
  EXPECT_THAT(bytes(StoredDType::kU8, {kInt64Max / 8}), IsOkAndHolds(kInt64Max / 8));
  EXPECT_THAT(bytes(StoredDType::kU8, {kInt64Max / 8 + 1}), StatusIs(kInvalid, "more bytes"));
  EXPECT_THAT(bytes(StoredDType::kF32, {-1}), StatusIs(kInvalid, "[-1], which is no number"));
}

}  // namespace
}  // namespace gantry
