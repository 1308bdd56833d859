// What the system refuses: each refusal is a typed error that names its directory, or a fallback
// with a line in the log. In children where the process itself must be broken for it.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_calls.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "nvme/block_store_fixture.h"
#include "nvme/create_io_backend.h"
#include "nvme/describe.h"
#include "nvme/io_backend.h"

namespace gantry {
namespace {

using BlockStoreFaultsTest = BlockStoreFixture;

TEST_F(BlockStoreFaultsTest, AMissingDirectoryIsNamed) {
  const BlockStore::Options options = {.directories = {root_.path(), root_.path() + "/missing"},
                                       .extent_bytes = Bytes(4096),
                                       .extent_count = 1,
                                       .sink = &sink_,
                                       .files = &posix_,
                                       .clock = &clock_,
                                       .logger = &logger_};
  const absl::Status status = BlockStore::Create(options).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status.ToString();
  EXPECT_TRUE(Contains(status, root_.path() + "/missing")) << status.ToString();
  EXPECT_TRUE(ListDirectory(root_.path()).empty());  // nothing is left in the other
}

TEST_F(BlockStoreFaultsTest, AFailedBackendNamesItsDirectory) {
  int made = 0;
  const absl::Status status = Create({.shares = {1, 1},
                                      .make_io = [&](const IoBackendOptions& options)
                                          -> absl::StatusOr<std::unique_ptr<IoBackend>> {
                                        if (made++ == 1) return Unavailable("injected");
                                        return CreateIoBackend(options);
                                      }})
                                  .status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status.ToString();
  EXPECT_TRUE(Contains(status, Directory(1))) << status.ToString();
}

// The second directory is a file system of 8 MiB.
TEST_F(BlockStoreFaultsTest, AFullDirectoryIsNamedAndGrowthChangesNothing) {
  const int result = RunInChild([&] {
    Make({.shares = {1, 1}, .extents = 0});  // makes the directories
    store_.reset();
    const std::string refused =
        MountPrivately({.type = "tmpfs", .path = Directory(1), .data = "size=8m"});
    if (!refused.empty()) {
      std::cout << refused << "\n";
      return kCannot;
    }
    const absl::Status status = Create({.shares = {1, 1}, .extents = 20}).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status.ToString();
    EXPECT_TRUE(Contains(status, Directory(1))) << status.ToString();
    Make({.shares = {1, 1}, .extents = 2});
    EXPECT_EQ(Allocate(), ExtentId(0));
    EXPECT_TRUE(Write(ExtentId(0), 1).ok());
    for (int i = 0; i < 2; ++i) {
      const absl::Status grown = store_->Grow(20);
      EXPECT_TRUE(absl::IsResourceExhausted(grown)) << grown.ToString();
      EXPECT_TRUE(Contains(grown, Directory(1))) << grown.ToString();
      EXPECT_EQ(store_->extents(), 2);
    }
    EXPECT_TRUE(store_->Grow(4).ok());  // the first directory has had room for long
    EXPECT_EQ(store_->extents(), 6);
    EXPECT_EQ(store_->Describe()[1].file_bytes, Bytes(6 << 20));
    EXPECT_EQ(store_->Describe()[0].file_bytes, Bytes(22 << 20));
    for (int i = 1; i < 6; ++i) {
      const ExtentId extent = Allocate();
      EXPECT_TRUE(Write(extent, static_cast<uint64_t>(i)).ok());
      ExpectContent(extent, static_cast<uint64_t>(i));
    }
    store_.reset();
    return 0;
  });
  if (result == kCannot) GTEST_SKIP() << "no tmpfs can be mounted here";
  EXPECT_EQ(result, 0);
}

TEST_F(BlockStoreFaultsTest, FileSizeLimitIsResourceExhausted) {
  EXPECT_EQ(RunInChild([&] {
              const rlimit limit = {.rlim_cur = 4 << 20, .rlim_max = 4 << 20};
              EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
              const absl::Status status = Create({.shares = {1, 1}, .extents = 5}).status();
              EXPECT_TRUE(absl::IsResourceExhausted(status)) << status.ToString();
              EXPECT_TRUE(Contains(status, "EFBIG")) << status.ToString();
              EXPECT_TRUE(Contains(status, Directory(0))) << status.ToString();
              Make({.shares = {1, 1}, .extents = 4});
              EXPECT_TRUE(Write(Allocate(), 1).ok());
              store_.reset();
              return 0;
            }),
            0);
}

TEST_F(BlockStoreFaultsTest, WithoutIoUringItUsesThreadsAndSaysSo) {
  const int result = RunInChild([&] {
    if (!RefuseSystemCall(SYS_io_uring_setup, EPERM)) return kCannot;
    Make({.shares = {1, 1}, .rings = 2});
    EXPECT_EQ(store_->Describe()[0].backend, "threads");
    EXPECT_EQ(store_->Describe()[0].ring_flags, "none");
    EXPECT_TRUE(Write(Allocate(), 1).ok());
    ExpectContent(ExtentId(0), 1);
    EXPECT_EQ(std::ranges::count_if(logger_.messages(),
                                    [](const std::string& message) {
                                      return message.find("pread/pwrite threads") !=
                                             std::string::npos;
                                    }),
              1);
    const absl::Status refused = Create({.shares = {1, 1}, .io = IoPreference::kIoUring}).status();
    EXPECT_TRUE(absl::IsUnavailable(refused)) << refused.ToString();
    store_.reset();
    return 0;
  });
  if (result == kCannot) GTEST_SKIP() << "seccomp is not available";
  EXPECT_EQ(result, 0);
}

// Writes hit the end of the space only when they happen: a file system that can't preallocate.
TEST_F(BlockStoreFaultsTest, ADriveThatFillsUpLaterIsResourceExhausted) {
  class NoPreallocation final : public PosixFileCalls {
   public:
    int Allocate(int, int64_t, int64_t) override { return -EOPNOTSUPP; }
  };
  const int result = RunInChild([&] {
    Make({.extents = 0});
    store_.reset();
    const std::string refused =
        MountPrivately({.type = "tmpfs", .path = Directory(0), .data = "size=6m"});
    if (!refused.empty()) {
      std::cout << refused << "\n";
      return kCannot;
    }
    NoPreallocation files;
    Make({.extents = 2, .files = &files});
    EXPECT_FALSE(store_->Describe()[0].preallocated);
    EXPECT_TRUE(store_->Grow(0).ok());
    EXPECT_TRUE(Write(Allocate(), 1).ok());
    // Somebody else takes the rest.
    const FileDescriptor other(open((Directory(0) + "/other").c_str(), O_RDWR | O_CREAT, 0600));
    EXPECT_EQ(posix_fallocate(other.get(), 0, 3 << 20), 0);
    const absl::Status full = Write(Allocate(), 2);
    EXPECT_TRUE(absl::IsResourceExhausted(full)) << full.ToString();
    EXPECT_TRUE(Contains(full, "ENOSPC")) << full.ToString();
    EXPECT_TRUE(Contains(full, Directory(0))) << full.ToString();
    ExpectContent(ExtentId(0), 1);
    store_.reset();
    return 0;
  });
  if (result == kCannot) GTEST_SKIP() << "no tmpfs can be mounted here";
  EXPECT_EQ(result, 0);
}

TEST_F(BlockStoreFaultsTest, SharesAreMeasuredWhereNoneAreGiven) {
  for (size_t i = 0; i < 2; ++i) ASSERT_EQ(mkdir(Directory(i).c_str(), 0700), 0);
  // Each transfer in the second directory takes three times as long, by this clock.
  class TimedCalls final : public PosixFileCalls {
   public:
    TimedCalls(VirtualClock* clock, std::string slow) : clock_(clock), slow_(std::move(slow)) {}
    int64_t ReadAt(int fd, std::span<std::byte> buffer, int64_t offset) override {
      Pass(fd, buffer.size());
      return PosixFileCalls::ReadAt(fd, buffer, offset);
    }
    int64_t WriteAt(int fd, std::span<const std::byte> buffer, int64_t offset) override {
      Pass(fd, buffer.size());
      return PosixFileCalls::WriteAt(fd, buffer, offset);
    }

   private:
    void Pass(int fd, size_t size) {
      if (size != static_cast<size_t>(kPieceBytes)) return;
      const bool slow = DescribeFd(fd).find(slow_) != std::string::npos;
      clock_->Advance(slow ? 12'000'000 : 4'000'000);
    }
    VirtualClock* const clock_;
    const std::string slow_;
  };
  VirtualClock clock;
  TimedCalls files(&clock, Directory(1));
  auto store = BlockStore::Create({.directories = {Directory(0), Directory(1)},
                                   .extent_bytes = Bytes(8 << 20),
                                   .extent_count = 8,
                                   .io = IoPreference::kThreads,
                                   .sink = &sink_,
                                   .files = &files,
                                   .clock = &clock,
                                   .logger = &logger_});
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  EXPECT_NEAR((*store)->Describe()[0].share, 0.75, 0.01);
  EXPECT_EQ((*store)->Describe()[0].file_bytes, Bytes(48 << 20));  // 6 of 8 MiB
  EXPECT_EQ((*store)->Describe()[1].file_bytes, Bytes(16 << 20));
}

}  // namespace
}  // namespace gantry
