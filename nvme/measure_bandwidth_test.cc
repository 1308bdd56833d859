// The load is real; the clock moves by what each transfer is said to take, so the result is exact.
#include "nvme/measure_bandwidth.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "nvme/create_io_backend.h"
#include "nvme/run_directory.h"
#include "nvme/testing_support.h"

namespace gantry {
namespace {

constexpr Nanoseconds kMillisecond = 1'000'000;

// Each transfer of 1 MiB takes a millisecond, one after the other.
class TimedCalls final : public PosixFileCalls {
 public:
  explicit TimedCalls(VirtualClock* clock) : clock_(clock) {}
  int64_t ReadAt(int fd, std::span<std::byte> buffer, int64_t offset) override {
    return After(PosixFileCalls::ReadAt(fd, buffer, offset), reads);
  }
  int64_t WriteAt(int fd, std::span<const std::byte> buffer, int64_t offset) override {
    return After(failing ? -EIO : PosixFileCalls::WriteAt(fd, buffer, offset), writes);
  }
  // Of whole pieces.
  std::atomic<int64_t> reads = 0;
  std::atomic<int64_t> writes = 0;
  std::atomic<bool> failing = false;

 private:
  int64_t After(int64_t bytes, std::atomic<int64_t>& count) {
    if (bytes != kPieceBytes) return bytes;
    ++count;
    clock_->Advance(kMillisecond);
    return bytes;
  }
  VirtualClock* const clock_;
};

class MeasureBandwidthTest : public testing::Test {
 protected:
  MeasureBandwidthTest() {
    auto run = RunDirectory::Create(&files_, clock_, parent_.path());
    EXPECT_TRUE(run.ok()) << run.status().ToString();
    run_ = *std::move(run);
  }
  BandwidthLoad Load() {
    return {.directory = run_.get(),
            .make_io = CreateIoBackend,
            .io = IoPreference::kThreads,
            .queue_depth = 4,
            .file_bytes_max = Bytes(64 << 20),
            .duration = 100 * kMillisecond,
            .bytes_max = Bytes(1 << 30),
            .clock = &clock_,
            .files = &calls_,
            .logger = &logger_};
  }

  TemporaryDirectory parent_;
  PosixFileCalls files_;
  std::unique_ptr<RunDirectory> run_;
  VirtualClock clock_;
  TimedCalls calls_{&clock_};
  MemoryLogger logger_;
};

TEST_F(MeasureBandwidthTest, IsBytesPerTimeOfReadsAndWrites) {
  const auto bandwidth = MeasureBandwidth(Load());
  ASSERT_TRUE(bandwidth.ok()) << bandwidth.status().ToString();
  EXPECT_NEAR(*bandwidth, kPieceBytes * 1000.0, 1.0);
  EXPECT_GE(clock_.Now(), 100 * kMillisecond);
  EXPECT_LE(clock_.Now(), 104 * kMillisecond);  // what was under way was waited for
  EXPECT_GT(calls_.reads, 30);
  EXPECT_GT(calls_.writes, 45);
  EXPECT_EQ(ListDirectory(run_->path()).size(), 1U);  // the lock only
}

TEST_F(MeasureBandwidthTest, ReadsAloneAreMeasuredWithoutWhatTheyNeedWritten) {
  BandwidthLoad load = Load();
  load.mix = IoMix::kReads;
  const auto bandwidth = MeasureBandwidth(load);
  ASSERT_TRUE(bandwidth.ok()) << bandwidth.status().ToString();
  EXPECT_NEAR(*bandwidth, kPieceBytes * 1000.0, 1.0);
  EXPECT_EQ(calls_.writes, 4 * 4);  // four extents of each request under way
  EXPECT_GE(calls_.reads, 100);
  EXPECT_GE(clock_.Now(), 116 * kMillisecond);
}

TEST_F(MeasureBandwidthTest, WritesAlone) {
  BandwidthLoad load = Load();
  load.mix = IoMix::kWrites;
  const auto bandwidth = MeasureBandwidth(load);
  ASSERT_TRUE(bandwidth.ok()) << bandwidth.status().ToString();
  EXPECT_NEAR(*bandwidth, kPieceBytes * 1000.0, 1.0);
  EXPECT_GE(calls_.writes, 100);
  EXPECT_EQ(calls_.reads, 0);
}

TEST_F(MeasureBandwidthTest, BytesBoundIt) {
  BandwidthLoad load = Load();
  load.bytes_max = Bytes(10 * kPieceBytes);
  ASSERT_TRUE(MeasureBandwidth(load).ok());
  EXPECT_EQ(clock_.Now(), 10 * kMillisecond);
}

TEST_F(MeasureBandwidthTest, AClockThatStandsStillIsNoDivisionByZero) {
  PosixFileCalls posix;
  BandwidthLoad load = Load();
  load.files = &posix;
  load.bytes_max = Bytes(8 * kPieceBytes);
  const auto bandwidth = MeasureBandwidth(load);
  ASSERT_TRUE(bandwidth.ok()) << bandwidth.status().ToString();
  EXPECT_EQ(*bandwidth, 1.0);
}

TEST_F(MeasureBandwidthTest, ASmallFileIsEnough) {
  BandwidthLoad load = Load();
  load.file_bytes_max = Bytes(0);
  load.duration = 10 * kMillisecond;
  EXPECT_TRUE(MeasureBandwidth(load).ok());
}

TEST_F(MeasureBandwidthTest, ErrorsComeThrough) {
  BandwidthLoad load = Load();
  load.make_io = [&](const IoBackendOptions& options) {
    auto backend = CreateIoBackend(options);
    calls_.failing = true;
    return backend;
  };
  EXPECT_TRUE(absl::IsDataLoss(MeasureBandwidth(load).status()));
  load.make_io = [](const IoBackendOptions&) {
    return absl::StatusOr<std::unique_ptr<IoBackend>>(Unavailable("no backend"));
  };
  calls_.failing = false;
  EXPECT_TRUE(absl::IsUnavailable(MeasureBandwidth(load).status()));
}

}  // namespace
}  // namespace gantry
