// Goal: a fault hits exactly the calls it names and does exactly what it says; all others go
// through. Method: real files, looked at with system calls of the test's own.
#include "base/testing/faulty_file_calls.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/file_calls.h"
#include "base/files.h"

namespace gantry {
namespace {

std::span<const std::byte> AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }

class FaultyFileCallsTest : public ::testing::Test {
 protected:
  FaultyFileCallsTest() {
    std::string name = ::testing::TempDir() + "/faulty_file_calls_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    file_ = FileDescriptor(open(Path("file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_TRUE(file_.valid());
  }
  ~FaultyFileCallsTest() override { std::filesystem::remove_all(root_); }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string Content() const {
    std::string text(64, '\0');
    const ssize_t got = pread(file_.get(), text.data(), text.size(), 0);
    EXPECT_GE(got, 0);
    text.resize(static_cast<size_t>(got));
    return text;
  }
  int64_t Write(std::string_view text, int64_t offset) {
    return calls_.WriteAt(file_.get(), AsBytes(text), offset);
  }
  int64_t Read(std::span<char> buffer, int64_t offset) {
    return calls_.ReadAt(file_.get(), std::as_writable_bytes(buffer), offset);
  }

  std::string root_;
  FileDescriptor file_;
  PosixFileCalls posix_;
  FaultyFileCalls calls_{&posix_};
};

// One call of each kind, in the order of FileCallKind, all of which succeed without faults.
std::vector<int64_t> CallAll(FileCalls& calls, const std::string& root) {
  const std::string from = root + "/from";
  const std::string to = root + "/to";
  std::vector<int64_t> results;
  FileDescriptor file(calls.Open(AT_FDCWD, from, O_RDWR | O_CREAT, 0600));
  results.push_back(file.valid() ? 0 : file.Release());
  if (!file.valid()) file = FileDescriptor(open(from.c_str(), O_RDWR | O_CREAT, 0600));
  std::byte byte{};
  results.push_back(calls.ReadAt(file.get(), {&byte, 1}, 0));
  results.push_back(calls.WriteAt(file.get(), {&byte, 1}, 0));
  results.push_back(calls.Sync(file.get(), FileCalls::SyncKind::kAll));
  results.push_back(calls.Allocate(file.get(), 0, 16));
  results.push_back(calls.Rename(AT_FDCWD, from, AT_FDCWD, to));
  results.push_back(calls.MakeDirectory(AT_FDCWD, root + "/made", 0700));
  results.push_back(calls.Unlink(AT_FDCWD, to, 0));
  unlink(from.c_str());
  unlink(to.c_str());
  rmdir((root + "/made").c_str());
  return results;
}

TEST_F(FaultyFileCallsTest, CountsEveryKindAndPassesEverythingOn) {
  EXPECT_EQ(calls_.calls(), 0);
  EXPECT_THAT(CallAll(calls_, root_), ::testing::ElementsAre(0, 0, 1, 0, 0, 0, 0, 0));
  for (int k = 0; k < kFileCallKindCount; ++k) {
    EXPECT_EQ(calls_.calls(static_cast<FileCallKind>(k)), 1) << static_cast<FileCallKind>(k);
  }
  CallAll(calls_, root_);
  EXPECT_EQ(calls_.calls(), 2 * kFileCallKindCount);
  EXPECT_EQ(calls_.faults(), 0);
}

TEST_F(FaultyFileCallsTest, NamesTheKinds) {
  std::ostringstream names;
  for (int k = 0; k < kFileCallKindCount; ++k) names << static_cast<FileCallKind>(k) << ' ';
  EXPECT_EQ(names.str(), "open read write sync allocate rename mkdir unlink ");
}

TEST_F(FaultyFileCallsTest, EachKindFailsAloneAndDoesNothingThen) {
  for (int k = 0; k < kFileCallKindCount; ++k) {
    FaultyFileCalls calls(&posix_);
    calls.Inject({.kind = static_cast<FileCallKind>(k), .first = 1}, FailCall{ENOSPC});
    EXPECT_THAT(CallAll(calls, root_), ::testing::ElementsAre(0, 0, 1, 0, 0, 0, 0, 0));
    const std::vector<int64_t> results = CallAll(calls, root_);
    for (int other = 0; other < kFileCallKindCount; ++other) {
      // Without the rename there is nothing under the new name to unlink.
      const bool follows = static_cast<FileCallKind>(k) == FileCallKind::kRename &&
                           static_cast<FileCallKind>(other) == FileCallKind::kUnlink;
      const bool writes = static_cast<FileCallKind>(other) == FileCallKind::kWrite;
      EXPECT_EQ(results[static_cast<size_t>(other)],
                other == k ? -ENOSPC : (follows ? -ENOENT : (writes ? 1 : 0)))
          << static_cast<FileCallKind>(other) << " while " << static_cast<FileCallKind>(k)
          << " fails";
    }
    EXPECT_EQ(calls.faults(), 1);
    EXPECT_THAT(CallAll(calls, root_), ::testing::ElementsAre(0, 0, 1, 0, 0, 0, 0, 0));
  }
}

TEST_F(FaultyFileCallsTest, FailsARowOfCallsAndForEver) {
  calls_.Inject({.kind = FileCallKind::kSync, .first = 1, .count = 2}, FailCall{EINTR});
  calls_.Inject({.kind = FileCallKind::kSync, .first = 4, .count = FaultyCalls::kForEver},
                FailCall{EIO});
  std::vector<int> results;
  for (int i = 0; i < 7; ++i) {
    results.push_back(calls_.Sync(file_.get(), FileCalls::SyncKind::kData));
  }
  EXPECT_THAT(results, ::testing::ElementsAre(0, -EINTR, -EINTR, 0, -EIO, -EIO, -EIO));
  EXPECT_EQ(calls_.faults(), 5);
  calls_.Clear();
  EXPECT_EQ(calls_.Sync(file_.get(), FileCalls::SyncKind::kData), 0);
  EXPECT_EQ(calls_.calls(FileCallKind::kSync), 8);
}

TEST_F(FaultyFileCallsTest, WithoutAKindAllCallsCountTogether) {
  calls_.Inject({.kind = {}, .first = 2, .count = 3}, FailCall{EIO});
  EXPECT_THAT(CallAll(calls_, root_), ::testing::ElementsAre(0, 0, -EIO, -EIO, -EIO, 0, 0, 0));
}

TEST_F(FaultyFileCallsTest, TheLastFaultForACallCounts) {
  calls_.Inject({.kind = FileCallKind::kWrite, .first = 0, .count = 2}, FailCall{EIO});
  calls_.Inject({.kind = FileCallKind::kWrite, .first = 1}, FailCall{ENOSPC});
  EXPECT_EQ(Write("a", 0), -EIO);
  EXPECT_EQ(Write("a", 0), -ENOSPC);
  EXPECT_EQ(Write("a", 0), 1);
}

TEST_F(FaultyFileCallsTest, ShortensWritesAndReads) {
  calls_.Inject({.kind = FileCallKind::kWrite, .first = 0}, ShortenCall{.bytes = 3});
  calls_.Inject({.kind = FileCallKind::kWrite, .first = 1}, ShortenCall{.bytes = 0});
  calls_.Inject({.kind = FileCallKind::kWrite, .first = 2}, ShortenCall{.bytes = 100});
  EXPECT_EQ(Write("abcdef", 0), 3);
  EXPECT_EQ(Write("XYZ", 3), 0);
  EXPECT_EQ(Content(), "abc");
  EXPECT_EQ(Write("def", 3), 3);
  calls_.Inject({.kind = FileCallKind::kRead, .first = 0}, ShortenCall{.bytes = 2});
  calls_.Inject({.kind = FileCallKind::kRead, .first = 1}, ShortenCall{.bytes = 0});
  std::string buffer(4, '.');
  EXPECT_EQ(Read(buffer, 1), 2);
  EXPECT_EQ(buffer, "bc..");
  EXPECT_EQ(Read(buffer, 0), 0);
  EXPECT_EQ(Read(buffer, 0), 4);
  EXPECT_EQ(buffer, "abcd");
}

TEST_F(FaultyFileCallsTest, LosesWrites) {
  ASSERT_EQ(Write("old", 0), 3);
  calls_.Inject({.kind = FileCallKind::kWrite, .first = 1}, LoseWrite{});
  EXPECT_EQ(Write("new!", 0), 4);
  EXPECT_EQ(Content(), "old");
}

TEST_F(FaultyFileCallsTest, MisplacesWrites) {
  ASSERT_EQ(Write("abcdef", 0), 6);
  calls_.Inject({.kind = FileCallKind::kWrite, .first = 1}, MisplaceWrite{.shift = 2});
  calls_.Inject({.kind = FileCallKind::kWrite, .first = 2}, MisplaceWrite{.shift = -1});
  EXPECT_EQ(Write("XY", 1), 2);
  EXPECT_EQ(Content(), "abcXYf");
  EXPECT_EQ(Write("Z", 1), 1);
  EXPECT_EQ(Content(), "ZbcXYf");
}

TEST_F(FaultyFileCallsTest, FlipsOneBitOfWhatIsWritten) {
  const std::string text = "abcd";
  for (int64_t bit = 0; bit < 40; ++bit) {
    calls_.Inject({.kind = FileCallKind::kWrite, .first = bit}, FlipBit{.bit = bit});
    EXPECT_EQ(Write(text, 0), 4);
    std::string expected = "abcd";
    const auto index = static_cast<size_t>(bit % 32);
    expected[index / 8] = static_cast<char>(expected[index / 8] ^ (1 << (index % 8)));
    EXPECT_EQ(Content(), expected) << bit;
    EXPECT_EQ(text, "abcd") << "the caller's bytes stay";
  }
  calls_.Inject({.kind = FileCallKind::kWrite, .first = 40}, FlipBit{.bit = 0});
  EXPECT_EQ(Write("", 0), 0);
}

TEST_F(FaultyFileCallsTest, FlipsOneBitOfWhatIsRead) {
  ASSERT_EQ(Write("ab", 0), 2);
  calls_.Inject({.kind = FileCallKind::kRead, .first = 0}, FlipBit{.bit = 8});
  calls_.Inject({.kind = FileCallKind::kRead, .first = 1}, FlipBit{.bit = 16});  // of 16 bits read
  calls_.Inject({.kind = FileCallKind::kRead, .first = 2}, FlipBit{.bit = 0});
  std::string buffer(3, '.');
  EXPECT_EQ(Read(buffer, 0), 2);
  EXPECT_EQ(buffer, "ac.");
  EXPECT_EQ(Read(buffer, 0), 2);
  EXPECT_EQ(buffer, "`b.");
  buffer = "...";
  EXPECT_EQ(Read(buffer, 2), 0) << "the end of the file";
  EXPECT_EQ(buffer, "...");
  EXPECT_EQ(Content(), "ab");
}

TEST_F(FaultyFileCallsTest, CorruptedDirectWritesStayPossible) {
  const std::string path = Path("direct");
  const FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600));
  if (!file.valid()) GTEST_SKIP() << "no direct I/O in " << root_;
  alignas(4096) static constexpr std::array<std::byte, 4096> kZeros{};
  calls_.Inject({.kind = FileCallKind::kWrite, .first = 0}, FlipBit{.bit = 3});
  ASSERT_EQ(calls_.WriteAt(file.get(), kZeros, 0), 4096);
  const FileDescriptor reader(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char first = 0;
  ASSERT_EQ(pread(reader.get(), &first, 1, 0), 1);
  EXPECT_EQ(first, 8);
}

TEST_F(FaultyFileCallsTest, ThreadsShareOneCount) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 200;
  calls_.Inject({.kind = FileCallKind::kSync, .first = 100, .count = 300}, FailCall{EIO});
  std::vector<int> failed(kThreads, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    // thread: callers of the object under test
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        if (calls_.Sync(-1, FileCalls::SyncKind::kData) == -EIO) ++failed[static_cast<size_t>(t)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed[0] + failed[1] + failed[2] + failed[3], 300);
  EXPECT_EQ(calls_.calls(), kThreads * kCalls);
  EXPECT_EQ(calls_.faults(), 300);
}

using FaultyFileCallsDeathTest = FaultyFileCallsTest;

TEST_F(FaultyFileCallsDeathTest, RefusesFaultsThatTheKindCannotHave) {
  EXPECT_DEATH(calls_.Inject({.kind = FileCallKind::kSync, .first = 0}, ShortenCall{1}), "");
  EXPECT_DEATH(calls_.Inject({.kind = FileCallKind::kRead, .first = 0}, LoseWrite{}), "");
  EXPECT_DEATH(calls_.Inject({.kind = FileCallKind::kRead, .first = 0}, MisplaceWrite{1}), "");
  EXPECT_DEATH(calls_.Inject({.kind = {}, .first = 0}, FlipBit{1}), "");
  EXPECT_DEATH(calls_.Inject({.kind = FileCallKind::kOpen, .first = 0}, FailCall{0}), "");
  EXPECT_DEATH(calls_.Inject({.kind = FileCallKind::kOpen, .first = -1}, FailCall{EIO}), "");
  EXPECT_DEATH(calls_.Inject({.kind = FileCallKind::kOpen, .first = 0, .count = 0}, FailCall{EIO}),
               "");
}

}  // namespace
}  // namespace gantry
