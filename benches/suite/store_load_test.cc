// The load moves what it says it moved, in either direction, and ends when it should.
#include "benches/suite/store_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/testing/status_matchers.h"
#include "benches/suite/fio.h"
#include "nvme/block_store.h"
#include "nvme/create_io_backend.h"

namespace gantry {
namespace {

class StoreLoadTest : public ::testing::TestWithParam<IoPreference> {
 protected:
  StoreLoadOptions Options(Bytes block_bytes, int64_t blocks) {
    return {.directory = ::testing::TempDir(),
            .block_bytes = block_bytes,
            .blocks = blocks,
            .queue_depth = 4,
            .requests = static_cast<int>(blocks / 4),
            .io = GetParam(),
            .files = &files_,
            .clock = &clock_,
            .logger = &logger_};
  }

  PosixFileCalls files_;
  MonotonicClock clock_;
  MemoryLogger logger_;
};

TEST_P(StoreLoadTest, CountsTheBytesOfEachDirection) {
  // One block of less than a piece, one of a piece and a bit.
  for (const Bytes block : {4_KiB, 1028_KiB}) {
    for (const Verification verification : {Verification::kEveryRead, Verification::kOff}) {
      StoreLoadOptions options = Options(block, 8);
      options.verification = verification;
      auto load = StoreLoad::Create(options);
      ASSERT_THAT(load, IsOk());
      for (const LoadMix mix : {LoadMix::kRead, LoadMix::kWrite, LoadMix::kMixed}) {
        const auto result = (*load)->Run({.mix = mix, .blocks = 20});
        ASSERT_THAT(result, IsOk());
        const int64_t reads = mix == LoadMix::kRead ? 20 : mix == LoadMix::kMixed ? 10 : 0;
        EXPECT_EQ(result->bytes_read, reads * block.count()) << Name(mix);
        EXPECT_EQ(result->bytes_written, (20 - reads) * block.count()) << Name(mix);
        EXPECT_EQ(result->nanoseconds.size(), 20U);
        EXPECT_GT(result->seconds, 0.0);
      }
    }
  }
}

// Requests 2 and buffers 5: each buffer has been used once after 5 blocks.
TEST_P(StoreLoadTest, BuffersTakeTurns) {
  StoreLoadOptions options = Options(4_KiB, 8);
  options.buffers = 5;
  auto load = StoreLoad::Create(options);
  ASSERT_THAT(load, IsOk());
  for (const ReadUse use : {ReadUse::kNone, ReadUse::kTouch}) {
    for (const int64_t blocks : {1, 5, 6, 100}) {
      const auto result = (*load)->Run({.mix = LoadMix::kRead, .blocks = blocks, .use = use});
      ASSERT_THAT(result, IsOk());
      EXPECT_EQ(result->bytes_read, blocks * 4096);
    }
  }
}

TEST_P(StoreLoadTest, EndsByTime) {
  auto load = StoreLoad::Create(Options(4_KiB, 4));
  ASSERT_THAT(load, IsOk());
  const auto result = (*load)->Run({.mix = LoadMix::kMixed, .duration = 1'000'000});
  ASSERT_THAT(result, IsOk());
  EXPECT_GT(result->bytes(), 0);
  EXPECT_GE(result->seconds, 1e-3);
}

TEST_P(StoreLoadTest, LeavesNothing) {
  const std::string folder = ::testing::TempDir() + "/load";
  std::filesystem::create_directory(folder);
  StoreLoadOptions options = Options(4_KiB, 4);
  options.directory = folder;
  ASSERT_THAT(StoreLoad::Create(options), IsOk());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST_P(StoreLoadTest, DirectoriesThatAreNotThereAreTold) {
  StoreLoadOptions options = Options(4_KiB, 4);
  options.directory = "/no/such/folder";
  EXPECT_THAT(StoreLoad::Create(options), StatusIs(absl::StatusCode::kNotFound, "/no/such/folder"));
}

TEST_P(StoreLoadTest, DrivesThatAreTooSmallAreTold) {
  EXPECT_THAT(StoreLoad::Create(Options(1_GiB, 4'000'000)),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

INSTANTIATE_TEST_SUITE_P(Backends, StoreLoadTest,
                         ::testing::Values(IoPreference::kAuto, IoPreference::kThreads));

}  // namespace
}  // namespace gantry
