#include "nvme/block_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/random.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "nvme/create_io_backend.h"
#include "nvme/run_directory.h"
#include "nvme/testing_support.h"

namespace gantry {
namespace {

using DirectIo = BlockFile::DirectIo;

bool Contains(const absl::Status& status, std::string_view text) {
  return FromAbsl(status.message()).find(text) != std::string_view::npos;
}

struct Shape {
  Bytes extent_bytes = 64_KiB;
  int64_t extents = 4;
  DirectIo direct_io = DirectIo::kWherePossible;
};

class BlockFileTest : public testing::Test {
 protected:
  // Makes the run's directory on first use, so that a child may mount something before.
  absl::StatusOr<std::unique_ptr<BlockFile>> Create(const Shape& shape) {
    if (run_ == nullptr) {
      auto run = RunDirectory::Create(&posix_, clock_, parent_.path());
      if (!run.ok()) return run.status();
      run_ = *std::move(run);
    }
    return BlockFile::Create({.directory = run_.get(),
                              .name = "blocks",
                              .extent_bytes = shape.extent_bytes,
                              .extent_count = shape.extents,
                              .logger = &logger_,
                              .files = &posix_,
                              .direct_io = shape.direct_io});
  }
  std::unique_ptr<IoBackend> Backend(IoPreference preference) {
    auto backend = CreateIoBackend({.sink = &sink_,
                                    .preference = preference,
                                    .directory = parent_.path(),
                                    .logger = &logger_,
                                    .files = &posix_});
    EXPECT_TRUE(backend.ok()) << backend.status().ToString();
    return backend.ok() ? *std::move(backend) : nullptr;
  }
  void RandomParts(BlockFile& file, IoBackend& backend);

  TemporaryDirectory parent_;
  MemoryLogger logger_;
  PosixFileCalls posix_;
  MonotonicClock clock_;
  std::unique_ptr<RunDirectory> run_;
  WaitingSink sink_;
};

// Writes random aligned parts of random extents over each other and checks all of it at the end.
void BlockFileTest::RandomParts(BlockFile& file, IoBackend& backend) {
  constexpr uint64_t kSeed = 515;
  SCOPED_TRACE(StrCat("seed ", kSeed));
  const Random random({.seed = kSeed, .stream = 0});
  const int64_t unit = 4096;
  const int64_t units = file.extent_bytes().count() / unit;
  std::vector<ExtentId> extents;
  std::vector<AlignedBlock> expected;
  for (int64_t i = 0; i < file.extents(); ++i) {
    extents.push_back(*file.AllocateExtent());
    expected.emplace_back(file.extent_bytes().count()).Fill(static_cast<uint64_t>(i));
    ASSERT_TRUE(Transfer(backend, sink_,
                         file.WriteRequest({.extent = extents.back(),
                                            .offset = 0,
                                            .buffer = expected.back().span(),
                                            .tag = 1}))
                    .ok());
  }
  uint64_t draw = 0;
  for (int i = 0; i < 60; ++i) {
    const auto which =
        static_cast<size_t>(random.Below(static_cast<int64_t>(extents.size()), draw++));
    const int64_t first = random.Below(units, draw++);
    const int64_t count = 1 + random.Below(units - first, draw++);
    AlignedBlock data(count * unit);
    data.Fill(1000 + static_cast<uint64_t>(i));
    std::ranges::copy(data.span(), expected[which].part(first * unit, count * unit).begin());
    const absl::Status status = Transfer(
        backend, sink_,
        file.WriteRequest(
            {.extent = extents[which], .offset = first * unit, .buffer = data.span(), .tag = 2}));
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  for (size_t i = 0; i < extents.size(); ++i) {
    AlignedBlock read(file.extent_bytes().count());
    const absl::Status status = Transfer(
        backend, sink_,
        file.ReadRequest({.extent = extents[i], .offset = 0, .buffer = read.span(), .tag = 3}));
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(std::ranges::equal(read.span(), expected[i].span())) << extents[i];
  }
}

TEST_F(BlockFileTest, RandomPartsOnBothBackendsDirectAndBuffered) {
  for (IoPreference preference : {IoPreference::kAuto, IoPreference::kThreads}) {
    for (DirectIo direct_io : {DirectIo::kWherePossible, DirectIo::kNever}) {
      auto file = Create({.extent_bytes = 2_MiB + 4_KiB, .extents = 3, .direct_io = direct_io});
      ASSERT_TRUE(file.ok()) << file.status().ToString();
      if (direct_io == DirectIo::kNever) {
        EXPECT_FALSE((*file)->direct());
        EXPECT_EQ((*file)->offset_alignment(), 1);
      }
      std::unique_ptr<IoBackend> backend = Backend(preference);
      ASSERT_NE(backend, nullptr);
      SCOPED_TRACE(StrCat(backend->name(), (*file)->direct() ? " direct" : " buffered"));
      RandomParts(**file, *backend);
    }
  }
}

TEST_F(BlockFileTest, LeavesNoName) {
  auto file = Create({});
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(ListDirectory(run_->path()), std::vector<std::string>{"lock"});
}

TEST_F(BlockFileTest, SpaceIsTakenAtCreationAndGivenBack) {
  auto file = Create({.extent_bytes = 1_MiB, .extents = 3});
  ASSERT_TRUE(file.ok());
  if (!(*file)->preallocated()) GTEST_SKIP() << "this file system cannot preallocate";
  const ExtentId first = *(*file)->AllocateExtent();
  AlignedBlock block(4096);
  const int fd =
      (*file)->ReadRequest({.extent = first, .offset = 0, .buffer = block.span(), .tag = 0}).fd;
  struct stat status{};
  ASSERT_EQ(fstat(fd, &status), 0);
  EXPECT_EQ(status.st_size, 3 << 20);
  EXPECT_GE(status.st_blocks * 512, 3 << 20);
  ASSERT_TRUE((*file)->Grow(2).ok());
  ASSERT_EQ(fstat(fd, &status), 0);
  EXPECT_GE(status.st_blocks * 512, 5 << 20);
}

TEST_F(BlockFileTest, ExtentsAreDistinctReusedAndBounded) {
  auto file = Create({.extents = 3});
  ASSERT_TRUE(file.ok());
  std::set<ExtentId> taken;
  for (int i = 0; i < 3; ++i) {
    auto extent = (*file)->AllocateExtent();
    ASSERT_TRUE(extent.ok());
    EXPECT_TRUE(taken.insert(*extent).second);
    EXPECT_EQ(extent->value(), i);  // low ones first
  }
  const absl::Status full = (*file)->AllocateExtent().status();
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_TRUE(Contains(full, "all 3 extents of 65536 bytes")) << full.ToString();
  (*file)->FreeExtent(ExtentId(1));
  EXPECT_EQ((*file)->extents_free(), 1);
  EXPECT_EQ(*(*file)->AllocateExtent(), ExtentId(1));
  ASSERT_TRUE((*file)->Grow(2).ok());
  EXPECT_EQ((*file)->extents(), 5);
  EXPECT_EQ(*(*file)->AllocateExtent(), ExtentId(3));
  EXPECT_EQ(*(*file)->AllocateExtent(), ExtentId(4));
}

TEST_F(BlockFileTest, EmptyFileGrows) {
  auto file = Create({.extents = 0});
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_TRUE(absl::IsResourceExhausted((*file)->AllocateExtent().status()));
  ASSERT_TRUE((*file)->Grow(1).ok());
  EXPECT_TRUE((*file)->AllocateExtent().ok());
  EXPECT_TRUE(absl::IsInvalidArgument((*file)->Grow(-1)));
}

TEST_F(BlockFileTest, SeveralThreadsAllocateAndGrow) {
  auto file = Create({.extent_bytes = 4_KiB, .extents = 8});
  ASSERT_TRUE(file.ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const ExtentId a = *(*file)->AllocateExtent();
        const ExtentId b = *(*file)->AllocateExtent();
        EXPECT_NE(a, b);
        (*file)->FreeExtent(a);
        (*file)->FreeExtent(b);
      }
    });
  }
  for (int i = 0; i < 5; ++i) EXPECT_TRUE((*file)->Grow(1).ok());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ((*file)->extents_free(), 13);
}

TEST_F(BlockFileTest, BadSizes) {
  EXPECT_TRUE(absl::IsInvalidArgument(Create({.extent_bytes = Bytes(0)}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Create({.extent_bytes = Bytes(4095)}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Create({.extents = -1}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Create({.extents = INT64_MAX / 4096}).status()));
}

TEST_F(BlockFileTest, FullDriveNamesNeedAndFree) {
  auto file = Create({.extent_bytes = 1_GiB, .extents = 1 << 13});  // 8 TiB
  if (file.ok()) GTEST_SKIP() << "this drive has 8 TiB free";
  EXPECT_TRUE(absl::IsResourceExhausted(file.status())) << file.status().ToString();
  EXPECT_TRUE(Contains(file.status(), run_->path()));
  EXPECT_TRUE(Contains(file.status(), "8796093022208 bytes more")) << file.status().ToString();
  EXPECT_TRUE(Contains(file.status(), "bytes are free")) << file.status().ToString();
}

TEST_F(BlockFileTest, FailedGrowthChangesNothing) {
  const int result = RunInChild([&] {
    const std::string refused =
        MountPrivately({.type = "tmpfs", .path = parent_.path(), .data = "size=1m"});
    if (!refused.empty()) {
      std::cout << refused << "\n";
      return kCannot;
    }
    auto file = Create({.extent_bytes = 64_KiB, .extents = 4});
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    if (!file.ok()) return 1;
    const absl::Status status = (*file)->Grow(100);
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status.ToString();
    EXPECT_TRUE(Contains(status, "needs 6553600 bytes more")) << status.ToString();
    EXPECT_EQ((*file)->extents(), 4);
    EXPECT_TRUE((*file)->Grow(8).ok());  // what the failed one took is free again
    std::unique_ptr<IoBackend> backend = Backend(IoPreference::kAuto);
    if (backend == nullptr) return 1;
    RandomParts(**file, *backend);
    run_.reset();
    return 0;
  });
  if (result == kCannot) GTEST_SKIP() << "no tmpfs can be mounted here";
  EXPECT_EQ(result, 0);
}

// ramfs has neither O_DIRECT nor fallocate.
TEST_F(BlockFileTest, FileSystemWithoutDirectIoOrPreallocation) {
  const int result = RunInChild([&] {
    const std::string refused =
        MountPrivately({.type = "ramfs", .path = parent_.path(), .data = ""});
    if (!refused.empty()) {
      std::cout << refused << "\n";
      return kCannot;
    }
    auto file = Create({.extent_bytes = 64_KiB, .extents = 4});
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    if (!file.ok()) return 1;
    EXPECT_FALSE((*file)->direct());
    EXPECT_FALSE((*file)->preallocated());
    EXPECT_EQ(logger_.messages().size(), 2u);
    std::unique_ptr<IoBackend> backend = Backend(IoPreference::kAuto);
    if (backend == nullptr) return 1;
    RandomParts(**file, *backend);
    EXPECT_EQ(ListDirectory(run_->path()), std::vector<std::string>{"lock"});
    run_.reset();
    return 0;
  });
  if (result == kCannot) GTEST_SKIP() << "no ramfs can be mounted here";
  EXPECT_EQ(result, 0);
}

// With the signal at its default: the process must survive.
TEST_F(BlockFileTest, FileSizeLimitIsAnError) {
  EXPECT_EQ(RunInChild([&] {
              const rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
              EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
              const absl::Status status = Create({.extent_bytes = 1_MiB, .extents = 2}).status();
              EXPECT_TRUE(absl::IsResourceExhausted(status)) << status.ToString();
              EXPECT_TRUE(Contains(status, "EFBIG")) << status.ToString();
              EXPECT_TRUE(Contains(status, "ulimit -f")) << status.ToString();
              run_.reset();
              return 0;
            }),
            0);
}

using BlockFileDeathTest = BlockFileTest;

TEST_F(BlockFileDeathTest, MisuseAborts) {
  auto file = Create({.extents = 2});
  ASSERT_TRUE(file.ok());
  const ExtentId extent = *(*file)->AllocateExtent();
  AlignedBlock block(128 << 10);
  auto read = [&](ExtentId which, int64_t offset, std::span<std::byte> buffer) {
    (void)(*file)->ReadRequest({.extent = which, .offset = offset, .buffer = buffer, .tag = 0});
  };
  read(extent, 0, block.part(0, 64 << 10));  // the whole extent is fine
  EXPECT_DEATH((*file)->FreeExtent(ExtentId(1)), "extent#1 is not allocated");
  EXPECT_DEATH(read(ExtentId(1), 0, block.part(0, 4096)), "extent#1 is not allocated");
  EXPECT_DEATH(read(ExtentId(2), 0, block.part(0, 4096)), "extent#2 is not allocated");
  EXPECT_DEATH(read(ExtentId(-1), 0, block.part(0, 4096)), "extent#-1 is not allocated");
  EXPECT_DEATH(read(extent, 0, block.part(0, 68 << 10)), "of an extent of 65536");
  EXPECT_DEATH(read(extent, 64 << 10, block.part(0, 4096)), "of an extent of 65536");
  if (!(*file)->direct()) GTEST_SKIP() << "no direct I/O here, so no alignment";
  EXPECT_DEATH(read(extent, 100, block.part(0, 4096)), "offset_alignment_");
  EXPECT_DEATH(read(extent, 0, block.part(0, 100)), "offset_alignment_");
  EXPECT_DEATH(read(extent, 0, block.part(1, 4096)), "alignment");
}

}  // namespace
}  // namespace gantry
