// Leaks on purpose, one of each kind, and things that look like leaks and are none.
#include "base/process_resources.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/strings.h"
#include "base/testing/faulty_file_calls.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class ProcessResourcesTest : public ::testing::Test {
 protected:
  ProcessResourcesTest() : path_(::testing::TempDir() + "process_resources_test") {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    before_ = Take();
  }

  ProcessResources Take() {
    const std::array<WatchedFolder, 2> folders = {
        WatchedFolder{.path = path_, .prefix = "run-"},
        WatchedFolder{.path = path_ + "/none", .prefix = ""}};
    auto taken = ProcessResources::Take(files_, folders);
    GANTRY_CHECK_OK(taken.status());
    return *std::move(taken);
  }
  std::vector<std::string> Left() { return LeftBehind(before_, Take()); }

  PosixFileCalls files_;
  std::string path_;
  ProcessResources before_;
};

TEST_F(ProcessResourcesTest, NothingIsLeftByNothing) {
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Left(), IsEmpty());
}

TEST_F(ProcessResourcesTest, OpenFilesAreNamed) {
  const std::string file = path_ + "/blocks";
  FileDescriptor leaked(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  EXPECT_THAT(Left(), ElementsAre(StrCat("descriptor ", leaked.get(), " of ", file)));
  ASSERT_EQ(unlink(file.c_str()), 0);
  EXPECT_THAT(Left(), ElementsAre(StrCat("descriptor ", leaked.get(), " of ", file, " (deleted)")));
  FileDescriptor event(eventfd(0, EFD_CLOEXEC));
  EXPECT_EQ(Left().size(), 2u);
  ASSERT_THAT(leaked.Close(), IsOk());
  EXPECT_THAT(Left(), ElementsAre(StrCat("descriptor ", event.get(), " of anon_inode:[eventfd]")));
  ASSERT_THAT(event.Close(), IsOk());
  EXPECT_THAT(Left(), IsEmpty());
}

TEST_F(ProcessResourcesTest, CopiesRedirectionsAndDevicesAreNoLeaks) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const FileDescriptor reader(ends[0]);
  const FileDescriptor writer(ends[1]);
  before_ = Take();
  const FileDescriptor copy(fcntl(writer.get(), F_DUPFD_CLOEXEC, 100));
  const FileDescriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const FileDescriptor status(open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(copy.valid() && null.valid() && status.valid());
  EXPECT_THAT(Left(), IsEmpty());
  // The same number for something else is one.
  const FileDescriptor other(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(dup3(other.get(), reader.get(), O_CLOEXEC), reader.get());
  EXPECT_EQ(Left().size(), 2u);
}

TEST_F(ProcessResourcesTest, LockedMemoryIsCounted) {
  const auto size = static_cast<size_t>(2 * sysconf(_SC_PAGESIZE));
  void* const memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  // AddressSanitizer makes mlock itself do nothing.
  if (syscall(SYS_mlock, memory, size) != 0)
    GTEST_SKIP() << "no memory may be locked here: errno " << errno;
  EXPECT_EQ(Take().locked - before_.locked, Bytes(static_cast<int64_t>(size)));
  EXPECT_THAT(Left(), ElementsAre(StrCat(Bytes(static_cast<int64_t>(size)), " of locked memory")));
  ASSERT_EQ(munmap(memory, size), 0);
  EXPECT_THAT(Left(), IsEmpty());
}

TEST_F(ProcessResourcesTest, PinnedMemoryIsCounted) {
  ProcessResources after = before_;
  after.pinned += 3_MiB;
  EXPECT_THAT(LeftBehind(before_, after), ElementsAre("3.0 MiB of pinned memory"));
  EXPECT_THAT(LeftBehind(after, before_), IsEmpty()) << "less than before is fine";
}

TEST_F(ProcessResourcesTest, FilesAreNamedWhenTheirNamesAreOurs) {
  std::ofstream(path_ + "/other") << "of somebody else";
  EXPECT_THAT(Left(), IsEmpty());
  std::ofstream(path_ + "/run-1") << "ours";
  std::filesystem::create_directory(path_ + "/run-2");
  EXPECT_THAT(Left(), UnorderedElementsAre(path_ + "/run-1", path_ + "/run-2"));
  before_ = Take();
  EXPECT_THAT(Left(), IsEmpty()) << "it was there before";
}

TEST_F(ProcessResourcesTest, WhatCannotBeReadIsAnError) {
  FaultyFileCalls faulty(&files_);
  const std::array<WatchedFolder, 1> folders = {WatchedFolder{.path = path_, .prefix = ""}};
  ASSERT_THAT(ProcessResources::Take(faulty, folders), IsOk());
  const int64_t calls = faulty.calls();
  for (int64_t n = 0; n < calls; ++n) {
    faulty.Inject({.kind = {}, .first = faulty.calls() + n}, FailCall{EIO});
    EXPECT_THAT(ProcessResources::Take(faulty, folders), StatusIs(absl::StatusCode::kDataLoss, ""));
    faulty.Clear();
  }
  const std::array<WatchedFolder, 1> file = {WatchedFolder{.path = "/dev/null", .prefix = ""}};
  EXPECT_THAT(ProcessResources::Take(files_, file),
              StatusIs(absl::StatusCode::kInternal, "/dev/null"));
}

}  // namespace
}  // namespace gantry
