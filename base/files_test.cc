#include "base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/file_calls.h"
#include "base/strings.h"
#include "base/testing/faulty_file_calls.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using absl::StatusCode;

static_assert(!std::is_copy_constructible_v<FileDescriptor>);
static_assert(!std::is_convertible_v<int, FileDescriptor>);

std::span<const std::byte> AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

int PermissionBits(const std::string& path) {
  struct stat info{};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return static_cast<int>(info.st_mode & 07777);
}

// In the calling process, files obey their permission bits even for root.
void DropCapabilities() {
  __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> none{};
  if (syscall(SYS_capset, &header, none.data()) != 0) std::abort();
}

// Each test has an empty directory of its own.
class FilesTest : public ::testing::Test {
 protected:
  FilesTest() {
    std::string name = ::testing::TempDir() + "/files_test_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~FilesTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  int64_t EntryCount() const {
    return std::distance(std::filesystem::directory_iterator(root_),
                         std::filesystem::directory_iterator());
  }
  // Creates a file through nothing but system calls.
  std::string MakeFile(const std::string& name, std::string_view content) const {
    const int fd = open(Path(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(write(fd, content.data(), content.size()), static_cast<ssize_t>(content.size()));
    close(fd);
    return Path(name);
  }

  PosixFileCalls calls_;
  std::string root_;
};

// ---- FileDescriptor
// ------------------------------------------------------------------------------

TEST_F(FilesTest, DescriptorClosesWhenItDies) {
  int fd = -1;
  {
    auto file = OpenFile(calls_, MakeFile("a", ""), O_RDONLY, 0);
    ASSERT_THAT(file, IsOk());
    EXPECT_TRUE(file->valid());
    fd = file->get();
    EXPECT_TRUE(IsOpen(fd));
    EXPECT_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST_F(FilesTest, DescriptorMoves) {
  FileDescriptor first(open(root_.c_str(), O_RDONLY));
  FileDescriptor second(open(root_.c_str(), O_RDONLY));
  const int first_fd = first.get();
  const int second_fd = second.get();
  second = std::move(first);
  EXPECT_FALSE(first.valid());
  EXPECT_EQ(second.get(), first_fd);
  EXPECT_FALSE(IsOpen(second_fd)) << "assignment closes what it replaces";
  const FileDescriptor third = std::move(second);
  EXPECT_FALSE(second.valid());
  EXPECT_EQ(third.get(), first_fd);
  EXPECT_TRUE(IsOpen(first_fd));
}

TEST_F(FilesTest, DescriptorSurvivesMovingToItself) {
  FileDescriptor file(open(root_.c_str(), O_RDONLY));
  FileDescriptor& same = file;
  file = std::move(same);
  EXPECT_TRUE(file.valid());
  EXPECT_TRUE(IsOpen(file.get()));
}

TEST_F(FilesTest, DescriptorReleasesAndCloses) {
  FileDescriptor file(open(root_.c_str(), O_RDONLY));
  const int fd = file.Release();
  EXPECT_FALSE(file.valid());
  EXPECT_TRUE(IsOpen(fd));
  FileDescriptor again(fd);
  EXPECT_THAT(again.Close(), IsOk());
  EXPECT_FALSE(again.valid());
  EXPECT_FALSE(IsOpen(fd));
  EXPECT_THAT(again.Close(), IsOk()) << "closing an empty descriptor does nothing";
}

TEST(FileDescriptorTest, CloseReportsErrors) {
  FileDescriptor bad(1 << 20);
  EXPECT_THAT(bad.Close(), StatusIs(StatusCode::kInternal, "EBADF"));
  EXPECT_FALSE(bad.valid());
}

// ---- ReadFileToString
// ----------------------------------------------------------------------------

TEST_F(FilesTest, ReadsWholeFiles) {
  const std::string binary("a\0b\xff\n", 5);
  EXPECT_THAT(ReadFileToString(calls_, MakeFile("binary", binary), 1_KiB), IsOkAndHolds(binary));
  EXPECT_THAT(ReadFileToString(calls_, MakeFile("empty", ""), Bytes(0)), IsOkAndHolds(""));
  const std::string large(300'000, 'x');
  EXPECT_THAT(ReadFileToString(calls_, MakeFile("large", large), 1_MiB), IsOkAndHolds(large));
}

TEST_F(FilesTest, ReadHonoursItsLimit) {
  const std::string path = MakeFile("a", "12345");
  EXPECT_THAT(ReadFileToString(calls_, path, Bytes(6)), IsOkAndHolds("12345"));
  EXPECT_THAT(ReadFileToString(calls_, path, Bytes(5)), IsOkAndHolds("12345"));
  EXPECT_THAT(
      ReadFileToString(calls_, path, Bytes(4)),
      StatusIs(StatusCode::kResourceExhausted, path + " holds 5 B, more than the 4 B allowed"));
}

TEST_F(FilesTest, ReadsFilesThatReportNoSize) {
  EXPECT_THAT(ReadFileToString(calls_, "/sys/kernel/mm/transparent_hugepage/enabled", 1_MiB),
              IsOk());  // claims 4096 bytes
  const auto status = ReadFileToString(calls_, "/proc/self/status", 1_MiB);
  ASSERT_THAT(status, IsOk());
  EXPECT_NE(status->find("Name:"), std::string::npos);
  EXPECT_THAT(ReadFileToString(calls_, "/proc/self/status", Bytes(10)),
              StatusIs(StatusCode::kResourceExhausted, "more than the 10 B allowed"));
}

TEST_F(FilesTest, ReadFollowsLinks) {
  ASSERT_EQ(symlink(MakeFile("a", "text").c_str(), Path("link").c_str()), 0);
  EXPECT_THAT(ReadFileToString(calls_, Path("link"), 1_KiB), IsOkAndHolds("text"));
}

TEST_F(FilesTest, ReadSaysWhatIsWrongWithThePath) {
  EXPECT_THAT(ReadFileToString(calls_, Path("none"), 1_KiB),
              StatusIs(StatusCode::kNotFound, "open " + Path("none") + ": ENOENT"));
  EXPECT_THAT(ReadFileToString(calls_, root_, 1_KiB),
              StatusIs(StatusCode::kInvalidArgument, root_ + " is a directory"));
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(ReadFileToString(calls_, Path("fifo"), 1_KiB),
              StatusIs(StatusCode::kInvalidArgument, "is a FIFO"));
  EXPECT_THAT(ReadFileToString(calls_, "/dev/null", 1_KiB),
              StatusIs(StatusCode::kInvalidArgument, "is a device"));
  EXPECT_THAT(ReadFileToString(calls_, "", 1_KiB), StatusIs(StatusCode::kInvalidArgument, "empty"));
  EXPECT_THAT(ReadFileToString(calls_, MakeFile("a", "text") + std::string(1, '\0') + "b", 1_KiB),
              StatusIs(StatusCode::kInvalidArgument, "zero byte"));
}

// An end before the size that the file had is not the end.
TEST_F(FilesTest, ReadTakesNoPartForTheWhole) {
  const std::string path = MakeFile("config", "the whole text");
  FaultyFileCalls cut(&calls_);
  cut.Inject({.kind = FileCallKind::kRead, .first = 0}, ShortenCall{5});
  cut.Inject({.kind = FileCallKind::kRead, .first = 1}, ShortenCall{0});
  EXPECT_THAT(ReadFileToString(cut, path, 1_KiB),
              StatusIs(StatusCode::kDataLoss, "ends at 5 of 14 B: it was cut short"));
}

using FilesDeathTest = FilesTest;

TEST_F(FilesDeathTest, ReadReportsUnreadableFiles) {
  const std::string path = MakeFile("secret", "text");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  EXPECT_EXIT(
      {
        DropCapabilities();
        const auto text = ReadFileToString(calls_, path, 1_KiB);
        std::cerr << text.status().ToString();
        std::_Exit(absl::IsPermissionDenied(text.status()) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "open .*/secret: EACCES");
}

// ---- WriteFileAtomically
// -------------------------------------------------------------------------

TEST_F(FilesTest, WriteCreatesAndReplaces) {
  const std::string path = Path("a");
  EXPECT_THAT(WriteFileAtomically(calls_, path, AsBytes("first")), IsOk());
  EXPECT_THAT(ReadFileToString(calls_, path, 1_KiB), IsOkAndHolds("first"));
  EXPECT_THAT(WriteFileAtomically(calls_, path, AsBytes("2")), IsOk());
  EXPECT_THAT(ReadFileToString(calls_, path, 1_KiB), IsOkAndHolds("2"));
  EXPECT_THAT(WriteFileAtomically(calls_, path, {}), IsOk());
  EXPECT_THAT(ReadFileToString(calls_, path, 1_KiB), IsOkAndHolds(""));
  EXPECT_EQ(EntryCount(), 1) << "no temporary file stays";
}

TEST_F(FilesTest, WriteReplacesTheFileRatherThanItsContent) {
  const std::string path = MakeFile("a", "old");
  const FileDescriptor reader(open(path.c_str(), O_RDONLY));
  EXPECT_THAT(WriteFileAtomically(calls_, path, AsBytes("new")), IsOk());
  std::array<char, 8> buffer{};
  ASSERT_EQ(read(reader.get(), buffer.data(), buffer.size()), 3);
  EXPECT_STREQ(buffer.data(), "old") << "whoever has the file open keeps the old content";
}

TEST_F(FilesTest, WriteSetsPermissions) {
  const std::string path = MakeFile("a", "old");
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  EXPECT_THAT(WriteFileAtomically(calls_, path, AsBytes("new")), IsOk());
  EXPECT_EQ(PermissionBits(path), 0640);
  const mode_t mask = umask(027);
  EXPECT_THAT(WriteFileAtomically(calls_, Path("b"), AsBytes("new")), IsOk());
  umask(mask);
  EXPECT_EQ(PermissionBits(Path("b")), 0640);
}

TEST_F(FilesTest, WriteReplacesLinksAndNotTheirTargets) {
  const std::string target = MakeFile("a", "old");
  ASSERT_EQ(symlink(target.c_str(), Path("link").c_str()), 0);
  EXPECT_THAT(WriteFileAtomically(calls_, Path("link"), AsBytes("new")), IsOk());
  EXPECT_THAT(ReadFileToString(calls_, target, 1_KiB), IsOkAndHolds("old"));
  EXPECT_THAT(ReadFileToString(calls_, Path("link"), 1_KiB), IsOkAndHolds("new"));
}

TEST_F(FilesTest, WriteTakesNamesOfTheGreatestLength) {
  const std::string path = Path(std::string(255, 'n'));
  EXPECT_THAT(WriteFileAtomically(calls_, path, AsBytes("text")), IsOk());
  EXPECT_THAT(ReadFileToString(calls_, path, 1_KiB), IsOkAndHolds("text"));
}

TEST_F(FilesTest, WriteToABareNameUsesTheCurrentDirectory) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(root_);
  EXPECT_THAT(WriteFileAtomically(calls_, "bare", AsBytes("text")), IsOk());
  std::filesystem::current_path(before);
  EXPECT_THAT(ReadFileToString(calls_, Path("bare"), 1_KiB), IsOkAndHolds("text"));
}

TEST_F(FilesTest, WriteRefusesWhatIsNotAFile) {
  EXPECT_THAT(WriteFileAtomically(calls_, root_, AsBytes("x")),
              StatusIs(StatusCode::kInvalidArgument, "is a directory"));
  EXPECT_THAT(WriteFileAtomically(calls_, "/dev/null", AsBytes("x")),
              StatusIs(StatusCode::kInvalidArgument, "is a device"));
  EXPECT_THAT(WriteFileAtomically(calls_, Path("no/file"), AsBytes("x")),
              StatusIs(StatusCode::kNotFound, Path("no")));
  EXPECT_THAT(WriteFileAtomically(calls_, "", AsBytes("x")),
              StatusIs(StatusCode::kInvalidArgument, "empty"));
}

// A file size limit makes write fail half way, as a full disk does.
TEST_F(FilesDeathTest, FailedWritesLeaveTheOldContentAndNoTemporaryFile) {
  const std::string path = MakeFile("a", "old");
  EXPECT_EXIT(
      {
        std::signal(SIGXFSZ, SIG_IGN);
        rlimit limit{};
        limit.rlim_cur = limit.rlim_max = 4096;
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) std::_Exit(2);
        const absl::Status status =
            WriteFileAtomically(calls_, path, AsBytes(std::string(10'000, 'x')));
        std::cerr << status.ToString();
        std::_Exit(status.ok() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "write 5904 B to .*: EFBIG");
  EXPECT_THAT(ReadFileToString(calls_, path, 1_KiB), IsOkAndHolds("old"));
  EXPECT_EQ(EntryCount(), 1);
}

TEST_F(FilesDeathTest, WriteReportsReadOnlyDirectories) {
  ASSERT_EQ(chmod(root_.c_str(), 0500), 0);
  EXPECT_EXIT(
      {
        DropCapabilities();
        const absl::Status status = WriteFileAtomically(calls_, Path("a"), AsBytes("x"));
        std::cerr << status.ToString();
        std::_Exit(absl::IsPermissionDenied(status) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "open .*: EACCES");
  ASSERT_EQ(chmod(root_.c_str(), 0700), 0);
}

// ---- Directories
// ---------------------------------------------------------------------------------

TEST_F(FilesTest, MakeDirectoryCreatesOne) {
  EXPECT_THAT(MakeDirectory(calls_, Path("d"), 0700), IsOk());
  EXPECT_EQ(PermissionBits(Path("d")), 0700);
  EXPECT_THAT(MakeDirectory(calls_, Path("d"), 0700),
              StatusIs(StatusCode::kAlreadyExists, Path("d")));
  EXPECT_THAT(MakeDirectory(calls_, Path("no/d"), 0700),
              StatusIs(StatusCode::kNotFound, Path("no/d")));
  EXPECT_THAT(MakeDirectory(calls_, "", 0700), StatusIs(StatusCode::kInvalidArgument, "empty"));
}

TEST_F(FilesTest, RemoveTreeRemovesEverythingBelow) {
  for (const char* directory : {"d", "d/e", "d/e/f", "d/empty"}) {
    ASSERT_THAT(MakeDirectory(calls_, Path(directory), 0700), IsOk());
  }
  for (const char* file : {"d/1", "d/e/2", "d/e/f/3", "d/.hidden"}) MakeFile(file, "text");
  for (int i = 0; i < 300; ++i) MakeFile(StrCat("d/e/many", i), "");
  MakeFile("beside", "text");
  EXPECT_THAT(RemoveTree(calls_, Path("d")), IsOk());
  EXPECT_FALSE(std::filesystem::exists(Path("d")));
  EXPECT_EQ(EntryCount(), 1);
}

TEST_F(FilesTest, RemoveTreeTakesTrailingSlashes) {
  ASSERT_THAT(MakeDirectory(calls_, Path("d"), 0700), IsOk());
  EXPECT_THAT(RemoveTree(calls_, Path("d//")), IsOk());
  EXPECT_EQ(EntryCount(), 0);
}

TEST_F(FilesTest, RemoveTreeDoesNotFollowLinks) {
  ASSERT_THAT(MakeDirectory(calls_, Path("kept"), 0700), IsOk());
  MakeFile("kept/file", "text");
  ASSERT_THAT(MakeDirectory(calls_, Path("d"), 0700), IsOk());
  ASSERT_EQ(symlink(Path("kept").c_str(), Path("d/link").c_str()), 0);
  ASSERT_EQ(symlink("nowhere", Path("d/dangling").c_str()), 0);
  EXPECT_THAT(RemoveTree(calls_, Path("d")), IsOk());
  EXPECT_FALSE(std::filesystem::exists(Path("d")));
  EXPECT_THAT(ReadFileToString(calls_, Path("kept/file"), 1_KiB), IsOkAndHolds("text"));
}

TEST_F(FilesTest, RemoveTreeRefusesWhatIsNotADirectory) {
  const std::string file = MakeFile("file", "text");
  EXPECT_THAT(RemoveTree(calls_, file), StatusIs(StatusCode::kInvalidArgument, "is a file"));
  ASSERT_THAT(MakeDirectory(calls_, Path("d"), 0700), IsOk());
  ASSERT_EQ(symlink(Path("d").c_str(), Path("link").c_str()), 0);
  EXPECT_THAT(RemoveTree(calls_, Path("link")),
              StatusIs(StatusCode::kInvalidArgument, "symbolic link"));
  EXPECT_THAT(RemoveTree(calls_, Path("link/")),
              StatusIs(StatusCode::kInvalidArgument, "symbolic link"));
  EXPECT_THAT(RemoveTree(calls_, Path("none")), StatusIs(StatusCode::kNotFound, Path("none")));
  EXPECT_EQ(EntryCount(), 3);
}

TEST_F(FilesTest, RemoveTreeRefusesTheRootAndRelativeEnds) {
  MakeFile("file", "text");
  ASSERT_THAT(MakeDirectory(calls_, Path("d"), 0700), IsOk());
  for (const std::string& path : {Path("."), Path("d/.."), Path("d/../"), std::string(".."),
                                  std::string("."), std::string("/"), std::string("//")}) {
    EXPECT_THAT(RemoveTree(calls_, path), StatusIs(StatusCode::kInvalidArgument, "refusing"))
        << path;
  }
  EXPECT_THAT(RemoveTree(calls_, ""), StatusIs(StatusCode::kInvalidArgument, "empty"));
  EXPECT_EQ(EntryCount(), 2);
}

TEST_F(FilesDeathTest, RemoveTreeNamesTheEntryThatResists) {
  ASSERT_THAT(MakeDirectory(calls_, Path("d"), 0700), IsOk());
  ASSERT_THAT(MakeDirectory(calls_, Path("d/locked"), 0700), IsOk());
  MakeFile("d/locked/file", "text");
  ASSERT_EQ(chmod(Path("d/locked").c_str(), 0500), 0);
  EXPECT_EXIT(
      {
        DropCapabilities();
        const absl::Status status = RemoveTree(calls_, Path("d"));
        std::cerr << status.ToString();
        std::_Exit(absl::IsPermissionDenied(status) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "unlink .*/d/locked/file: EACCES");
  EXPECT_TRUE(std::filesystem::exists(Path("d/locked/file")));
}

TEST_F(FilesTest, MakeDirectoriesCreatesWhatIsMissing) {
  EXPECT_THAT(MakeDirectories(calls_, Path("a/b//c/")), IsOk());
  EXPECT_TRUE(std::filesystem::is_directory(Path("a/b/c")));
  EXPECT_THAT(MakeDirectories(calls_, Path("a/b/c")), IsOk());
  EXPECT_THAT(MakeDirectories(calls_, "/"), IsOk());
  ASSERT_EQ(symlink(Path("a").c_str(), Path("link").c_str()), 0);
  EXPECT_THAT(MakeDirectories(calls_, Path("link/d")), IsOk());
  EXPECT_TRUE(std::filesystem::is_directory(Path("a/d")));
  const std::string file = MakeFile("file", "");
  EXPECT_THAT(MakeDirectories(calls_, file), StatusIs(StatusCode::kAlreadyExists, file));
  EXPECT_THAT(MakeDirectories(calls_, file + "/d"), StatusIs(StatusCode::kInternal, "ENOTDIR"));
  EXPECT_THAT(MakeDirectories(calls_, ""), StatusIs(StatusCode::kInvalidArgument, "empty"));
}

TEST_F(FilesTest, ListNamesListsEverythingButDots) {
  ASSERT_THAT(MakeDirectory(calls_, Path("d"), 0700), IsOk());
  MakeFile(".hidden", "");
  const FileDescriptor directory(open(root_.c_str(), O_RDONLY | O_DIRECTORY));
  for (int round = 0; round < 2; ++round) {
    EXPECT_THAT(ListNames(calls_, {directory.get(), root_}),
                IsOkAndHolds(::testing::UnorderedElementsAre("d", ".hidden")));
  }
}

// ---- Faults
// --------------------------------------------------------------------------------------

TEST_F(FilesTest, InterruptedAndShortTransfersAreResumed) {
  FaultyFileCalls faulty(&calls_);
  faulty.Inject({.kind = FileCallKind::kOpen, .first = 0, .count = 2}, FailCall{EINTR});
  faulty.Inject({.kind = FileCallKind::kWrite, .first = 0}, ShortenCall{.bytes = 1});
  faulty.Inject({.kind = FileCallKind::kWrite, .first = 1}, FailCall{EINTR});
  faulty.Inject({.kind = FileCallKind::kSync, .first = 0}, FailCall{EINTR});
  EXPECT_THAT(WriteFileAtomically(faulty, Path("a"), AsBytes("some text")), IsOk());
  EXPECT_EQ(faulty.calls(FileCallKind::kWrite), 3);
  faulty.Inject({.kind = FileCallKind::kRead, .first = 0}, ShortenCall{.bytes = 2});
  faulty.Inject({.kind = FileCallKind::kRead, .first = 1}, FailCall{EINTR});
  EXPECT_THAT(ReadFileToString(faulty, Path("a"), 1_KiB), IsOkAndHolds("some text"));
  EXPECT_EQ(faulty.faults(), 7);
}

TEST_F(FilesTest, AFileThatTakesNoMoreBytesIsAnErrorAndNoLoop) {
  FaultyFileCalls faulty(&calls_);
  faulty.Inject({.kind = FileCallKind::kWrite, .first = 0, .count = FaultyCalls::kForEver},
                ShortenCall{.bytes = 0});
  EXPECT_THAT(WriteFileAtomically(faulty, Path("a"), AsBytes("text")),
              StatusIs(StatusCode::kInternal, "takes no more bytes at offset 0"));
  EXPECT_EQ(EntryCount(), 0);
}

// After a failed fsync the kernel may have dropped the pages and says so only once.
TEST_F(FilesTest, AFailedSyncIsFinal) {
  const std::string path = MakeFile("a", "old");
  FaultyFileCalls faulty(&calls_);
  faulty.Inject({.kind = FileCallKind::kSync, .first = 0}, FailCall{EIO});
  EXPECT_THAT(WriteFileAtomically(faulty, path, AsBytes("new")),
              StatusIs(StatusCode::kDataLoss, "fsync"));
  EXPECT_EQ(faulty.calls(FileCallKind::kSync), 1);
  EXPECT_EQ(faulty.calls(FileCallKind::kRename), 0);
  EXPECT_THAT(ReadFileToString(calls_, path, 1_KiB), IsOkAndHolds("old"));
  EXPECT_EQ(EntryCount(), 1);
}

TEST_F(FilesTest, WhicheverCallOfAWriteFailsTheContentIsOldOrNew) {
  const std::string path = MakeFile("a", "old");
  FaultyFileCalls counting(&calls_);
  ASSERT_THAT(WriteFileAtomically(counting, path, AsBytes("old")), IsOk());
  const int64_t calls = counting.calls();
  ASSERT_EQ(calls, 6) << "open, write, sync, rename; open and sync of the directory";
  for (const int64_t count : {int64_t{1}, FaultyCalls::kForEver}) {
    for (int64_t n = 0; n <= calls; ++n) {
      FaultyFileCalls faulty(&calls_);
      faulty.Inject({.kind = {}, .first = n, .count = count}, FailCall{EIO});
      const absl::Status status = WriteFileAtomically(faulty, path, AsBytes("new"));
      EXPECT_EQ(status.ok(), n == calls) << n << ": " << status;
      const bool renamed = n >= 4;
      EXPECT_THAT(ReadFileToString(calls_, path, 1_KiB), IsOkAndHolds(renamed ? "new" : "old"));
      // Only when nothing can be unlinked either is the temporary file left.
      const bool left = count > 1 && n > 0 && !renamed;
      EXPECT_EQ(EntryCount(), left ? 2 : 1) << n;
      for (const auto& entry : std::filesystem::directory_iterator(root_)) {
        std::filesystem::remove(entry.path());
      }
      MakeFile("a", "old");
    }
  }
}

TEST_F(FilesTest, WhicheverCallOfARemovalFailsTheNextOneFinishes) {
  const auto make = [&] {
    for (const char* directory : {"d", "d/e", "d/empty"}) {
      ASSERT_THAT(MakeDirectory(calls_, Path(directory), 0700), IsOk());
    }
    for (const char* file : {"d/1", "d/e/2"}) MakeFile(file, "text");
  };
  make();
  FaultyFileCalls counting(&calls_);
  ASSERT_THAT(RemoveTree(counting, Path("d")), IsOk());
  for (int64_t n = 0; n < counting.calls(); ++n) {
    make();
    FaultyFileCalls faulty(&calls_);
    faulty.Inject({.kind = {}, .first = n}, FailCall{EIO});
    EXPECT_THAT(RemoveTree(faulty, Path("d")), StatusIs(StatusCode::kDataLoss, Path("d"))) << n;
    EXPECT_THAT(RemoveTree(faulty, Path("d")), IsOk());
    EXPECT_EQ(EntryCount(), 0);
  }
}

}  // namespace
}  // namespace gantry
