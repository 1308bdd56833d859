#include "trainer/data/line_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/random.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;

class LineFileTest : public ::testing::Test {
 protected:
  std::string Path() const { return ::testing::TempDir() + "lines.jsonl"; }
  absl::StatusOr<std::unique_ptr<LineFile>> Open(const std::string& content,
                                                 Bytes line_bytes_max = 16_MiB) {
    GANTRY_CHECK_OK(WriteFileAtomically(calls_, Path(), std::as_bytes(std::span(content))));
    return LineFile::Open(calls_, {.path = Path(), .line_bytes_max = line_bytes_max});
  }
  std::vector<std::string> Lines(const std::string& content) {
    const auto file = Open(content);
    GANTRY_CHECK_OK(file.status());
    std::vector<std::string> lines;
    for (int64_t i = 0; i < (*file)->lines(); ++i) lines.push_back((*file)->Read(i).value());
    return lines;
  }

  PosixFileCalls calls_;
};

TEST_F(LineFileTest, TakesLinesOfEveryKindOfEnd) {
  EXPECT_THAT(Lines("a"), ElementsAre("a"));
  EXPECT_THAT(Lines("a\n"), ElementsAre("a"));
  EXPECT_THAT(Lines("\n"), ElementsAre(""));
  EXPECT_THAT(Lines("a\r\n\r\nb\rc\n\nd"), ElementsAre("a", "", "b\rc", "", "d"));
  EXPECT_THAT(Lines("\xef\xbb\xbf{}\n\xef\xbb\xbf"), ElementsAre("{}", "\xef\xbb\xbf"));
  EXPECT_THAT(Lines(std::string("a\0b\n", 4)), ElementsAre(std::string("a\0b", 3)));
}

TEST_F(LineFileTest, FindsLinesAcrossBlocks) {
  constexpr uint64_t kSeed = 3;
  const Random random({.seed = kSeed, .stream = 0});
  std::vector<std::string> lines;
  std::string content;
  for (uint64_t i = 0; content.size() < (3u << 20); ++i) {
    const int64_t size = i % 50 == 7 ? random.Below(1 << 20, i) : random.Below(200, i);
    lines.emplace_back(static_cast<size_t>(size), static_cast<char>('a' + i % 26));
    content += lines.back() + "\n";
  }
  const auto file = Open(content);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->lines(), static_cast<int64_t>(lines.size())) << "seed " << kSeed;
  for (size_t i = lines.size(); i-- > 0;) {
    EXPECT_EQ((*file)->Read(static_cast<int64_t>(i)).value(), lines[i]) << "seed " << kSeed;
  }
}

TEST_F(LineFileTest, LimitsTheLengthOfALine) {
  for (const std::string end : {"\n", "\r\n", ""}) {
    const auto file = Open("x\n" + std::string(100, 'y') + end, Bytes(100));
    ASSERT_TRUE(file.ok());
    EXPECT_EQ((*file)->Read(1).value(), std::string(100, 'y'));
  }
  const auto file = Open("x\n" + std::string(103, 'y') + "\nz", Bytes(100));
  ASSERT_TRUE(file.ok());
  EXPECT_THAT((*file)->Read(1).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "lines.jsonl', line 2: it has 104 B"));
  EXPECT_EQ((*file)->Read(2).value(), "z");
}

// A gigabyte without an end of line, of which a sparse file takes nothing: it is known by its
// number, and neither opening nor reading takes it into memory.
TEST_F(LineFileTest, AGigabyteInOneLineIsAnErrorByNumber) {
  ASSERT_TRUE(Open("first\n").ok());
  const int fd = open(Path().c_str(), O_WRONLY);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, (int64_t{1} << 30) + 6), 0);
  ASSERT_EQ(close(fd), 0);
  const auto file = LineFile::Open(calls_, {.path = Path()});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->lines(), 2);
  EXPECT_EQ((*file)->Read(0).value(), "first");
  EXPECT_THAT((*file)->Read(1).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "2: it has 1.0 GiB; at most 16.0 MiB"));
  ASSERT_EQ(unlink(Path().c_str()), 0);
}

TEST_F(LineFileTest, KnowsItsContent) {
  const std::string first = (*Open("a\nb\n"))->fingerprint();
  EXPECT_EQ((*Open("a\nb\n"))->fingerprint(), first);
  EXPECT_NE((*Open("a\nc\n"))->fingerprint(), first);
}

TEST_F(LineFileTest, NoticesThatTheFileHasChanged) {
  const auto file = Open("aa\nbb\n");
  ASSERT_TRUE(file.ok());
  const int fd = open(Path().c_str(), O_WRONLY);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(pwrite(fd, "a\nb\nb\n", 6, 0), 6);
  EXPECT_THAT((*file)->Read(0).status(), StatusIs(absl::StatusCode::kDataLoss, "line 1: the file"));
  ASSERT_EQ(ftruncate(fd, 4), 0);
  EXPECT_THAT((*file)->Read(1).status(), StatusIs(absl::StatusCode::kDataLoss, "line 2: "));
  ASSERT_EQ(close(fd), 0);
}

TEST_F(LineFileTest, RefusesWhatHasNoLines) {
  EXPECT_THAT(Open("").status(), StatusIs(absl::StatusCode::kInvalidArgument, "is empty"));
  EXPECT_THAT(LineFile::Open(calls_, {.path = "/dev/null"}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "not a regular file"));
  EXPECT_THAT(LineFile::Open(calls_, {.path = ::testing::TempDir() + "missing"}).status(),
              StatusIs(absl::StatusCode::kNotFound, "missing"));
}

}  // namespace
}  // namespace gantry
