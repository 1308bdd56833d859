// Each call does what the system call of its name does, and says errno where that fails.
#include "base/file_calls.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/files.h"

namespace gantry {
namespace {

class FileCallsTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const {
    return ::testing::TempDir() + "/file_calls_" + name;
  }
  PosixFileCalls calls_;
};

TEST_F(FileCallsTest, WritesReadsSyncsRenamesAndUnlinks) {
  const std::string directory = Path("dir");
  ASSERT_EQ(calls_.MakeDirectory(AT_FDCWD, directory, 0700), 0);
  EXPECT_EQ(calls_.MakeDirectory(AT_FDCWD, directory, 0700), -EEXIST);
  const FileDescriptor folder(calls_.Open(AT_FDCWD, directory, O_RDONLY | O_DIRECTORY, 0));
  ASSERT_TRUE(folder.valid());
  FileDescriptor file(calls_.Open(folder.get(), "a", O_RDWR | O_CREAT | O_EXCL, 0600));
  ASSERT_TRUE(file.valid());
  EXPECT_EQ(fcntl(file.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(calls_.Open(folder.get(), "a", O_RDWR | O_CREAT | O_EXCL, 0600), -EEXIST);

  ASSERT_EQ(calls_.Allocate(file.get(), 0, 8192), 0);
  struct stat info{};
  ASSERT_EQ(fstat(file.get(), &info), 0);
  EXPECT_EQ(info.st_size, 8192);
  const std::array<std::byte, 4> text{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  EXPECT_EQ(calls_.WriteAt(file.get(), text, 8190), 4);
  EXPECT_EQ(calls_.Sync(file.get(), FileCalls::SyncKind::kAll), 0);
  EXPECT_EQ(calls_.Sync(file.get(), FileCalls::SyncKind::kData), 0);

  EXPECT_EQ(calls_.Rename(folder.get(), "a", folder.get(), "b"), 0);
  EXPECT_EQ(calls_.Rename(folder.get(), "a", folder.get(), "b"), -ENOENT);
  std::array<std::byte, 8> read{};
  EXPECT_EQ(calls_.ReadAt(file.get(), read, 8190), 4);  // the file ends
  EXPECT_EQ(std::memcmp(read.data(), text.data(), text.size()), 0);
  EXPECT_EQ(calls_.ReadAt(file.get(), read, 8194), 0);

  EXPECT_EQ(calls_.Unlink(folder.get(), "b", 0), 0);
  EXPECT_EQ(calls_.Unlink(folder.get(), "b", 0), -ENOENT);
  EXPECT_EQ(calls_.Unlink(AT_FDCWD, directory, AT_REMOVEDIR), 0);
}

TEST_F(FileCallsTest, WritesToPipes) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const FileDescriptor reader(ends[0]);
  const FileDescriptor writer(ends[1]);
  std::array<std::byte, 4> bytes{std::byte{7}};
  EXPECT_EQ(calls_.WriteAt(writer.get(), bytes, 100), 4);
  EXPECT_EQ(calls_.ReadAt(reader.get(), bytes, 0), -ESPIPE);
  EXPECT_EQ(read(reader.get(), bytes.data(), bytes.size()), 4);
}

TEST_F(FileCallsTest, SaysErrno) {
  std::array<std::byte, 4> bytes{};
  EXPECT_EQ(calls_.Open(AT_FDCWD, Path("nowhere/a"), O_RDONLY, 0), -ENOENT);
  EXPECT_EQ(calls_.ReadAt(-1, bytes, 0), -EBADF);
  EXPECT_EQ(calls_.WriteAt(-1, bytes, 0), -EBADF);
  EXPECT_EQ(calls_.Sync(-1, FileCalls::SyncKind::kAll), -EBADF);
  EXPECT_EQ(calls_.Sync(-1, FileCalls::SyncKind::kData), -EBADF);
  EXPECT_EQ(calls_.Allocate(-1, 0, 4096), -EBADF);
  EXPECT_EQ(calls_.MakeDirectory(AT_FDCWD, Path("nowhere/a"), 0700), -ENOENT);
}

}  // namespace
}  // namespace gantry
