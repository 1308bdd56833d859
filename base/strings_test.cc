#include "base/strings.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using absl::StatusCode;

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  return NearestName(word, candidates.data(), candidates.size());
}

TEST(StringsTest, BridgesKeepPointerAndSize) {
  const std::string_view text("a\0b", 3);
  EXPECT_EQ(ToAbsl(text).data(), text.data());
  EXPECT_EQ(ToAbsl(text).size(), 3u);
  EXPECT_EQ(FromAbsl(ToAbsl(text)), text);
  EXPECT_TRUE(ToAbsl(std::string_view()).empty());
}

TEST(StringsTest, StrCatStreamsItsParts) {
  EXPECT_EQ(StrCat("a", std::string("b"), std::string_view("c"), 'd', -5, 2.5), "abcd-52.5");
  EXPECT_EQ(StrCat("x"), "x");
}

TEST(StringsTest, StatusConstructorsSetCodeAndMessage) {
  EXPECT_THAT(InvalidArgument("k = ", 3), StatusIs(StatusCode::kInvalidArgument, "k = 3"));
  EXPECT_THAT(FailedPrecondition("x"), StatusIs(StatusCode::kFailedPrecondition, "x"));
  EXPECT_THAT(ResourceExhausted("x"), StatusIs(StatusCode::kResourceExhausted, "x"));
  EXPECT_THAT(NotFound("x"), StatusIs(StatusCode::kNotFound, "x"));
  EXPECT_THAT(DataLoss("x"), StatusIs(StatusCode::kDataLoss, "x"));
  EXPECT_THAT(Unavailable("x"), StatusIs(StatusCode::kUnavailable, "x"));
  EXPECT_THAT(Internal("x"), StatusIs(StatusCode::kInternal, "x"));
  EXPECT_THAT(MakeStatus(StatusCode::kAborted, "a", 1), StatusIs(StatusCode::kAborted, "a1"));
}

TEST(StringsTest, ErrnoStatusMapsTheDocumentedCodes) {
  const std::vector<std::pair<int, StatusCode>> expected = {
      {ENOSPC, StatusCode::kResourceExhausted}, {EDQUOT, StatusCode::kResourceExhausted},
      {ENOENT, StatusCode::kNotFound},          {EACCES, StatusCode::kPermissionDenied},
      {EPERM, StatusCode::kPermissionDenied},   {EROFS, StatusCode::kPermissionDenied},
      {EEXIST, StatusCode::kAlreadyExists},     {EIO, StatusCode::kDataLoss},
      {EBADF, StatusCode::kInternal},           {EMFILE, StatusCode::kInternal},
  };
  for (const auto& [error_number, code] : expected) {
    EXPECT_THAT(ErrnoStatus(error_number, "what"), StatusIs(code)) << error_number;
  }
}

TEST(StringsTest, ErrnoStatusNamesTheErrorAndTheOperation) {
  EXPECT_THAT(ErrnoStatus(ENOSPC, "write /x"),
              StatusIs(StatusCode::kResourceExhausted,
                       ::testing::StrEq("write /x: ENOSPC (No space left on device)")));
  EXPECT_THAT(ErrnoStatus(99999, "write /x"),
              StatusIs(StatusCode::kInternal, ::testing::StrEq("write /x: errno 99999")));
}

TEST(StringsTest, NearestNameFindsTypingErrors) {
  const std::vector<std::string> keys = {"learning_rate", "batch_size", "warmup_steps", "policy"};
  EXPECT_EQ(Nearest("learning_rat", keys), "learning_rate");
  EXPECT_EQ(Nearest("leerning_rate", keys), "learning_rate");
  EXPECT_EQ(Nearest("batchsize", keys), "batch_size");
  EXPECT_EQ(Nearest("pollicy", keys), "policy");
  EXPECT_EQ(Nearest("policy", keys), "policy");
}

TEST(StringsTest, NearestNameTakesTheLeastDistanceAndTheFirstOfEquals) {
  EXPECT_EQ(Nearest("abcd", {"abxy", "abcx", "abcy"}), "abcx");
  EXPECT_EQ(Nearest("abcd", {"abdc", "xbcx"}), "abdc") << "a swap costs 1, not 2";
}

TEST(StringsTest, NearestNameHasALimit) {
  // max(2, 4 / 3) = 2.
  EXPECT_EQ(Nearest("abcd", {"abxy"}), "abxy");
  EXPECT_EQ(Nearest("abcd", {"axyz"}), "");
  // max(2, 12 / 3) = 4.
  EXPECT_EQ(Nearest("abcdefghijkl", {"abcdefgh0000"}), "abcdefgh0000");
  EXPECT_EQ(Nearest("abcdefghijkl", {"abcdefg00000"}), "");
}

TEST(StringsTest, NearestNameOfNothingIsNothing) {
  EXPECT_EQ(Nearest("abc", {}), "");
  EXPECT_EQ(Nearest("", {"a", ""}), "");
  EXPECT_EQ(Nearest("x", {"y", "lr"}), "") << "nothing of the word would be left";
  EXPECT_EQ(Nearest("x", {"y", "x"}), "x");
}

TEST(StringsTest, Utf8SequencesHaveTheirSizes) {
  EXPECT_EQ(Utf8SequenceSize("a\xff"), 1U);
  EXPECT_EQ(Utf8SequenceSize("\xc2\x80"), 2U);
  EXPECT_EQ(Utf8SequenceSize("\xe0\xa0\x80"), 3U);
  EXPECT_EQ(Utf8SequenceSize("\xed\x9f\xbf"), 3U);
  EXPECT_EQ(Utf8SequenceSize("\xf4\x8f\xbf\xbf"), 4U);
  // Not at a start, cut off, over-long, a surrogate, above U+10FFFF, no byte of UTF-8.
  for (const char* bad :
       {"\x80", "\xc2", "\xc2z", "\xe2\x82", "\xf0\x9f\x98", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf",
        "\xf0\x8f\xbf\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_EQ(Utf8SequenceSize(bad), 0U) << bad;
  }
}

}  // namespace
}  // namespace gantry
