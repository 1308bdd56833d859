// The simulated drive: the contract of IoBackend as far as one thread can ask for it, virtual time,
// order, injected faults, and that a seed is one run.
#include "nvme/simulated_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "nvme/scratch_file.h"
#include "nvme/testing_support.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using Kind = IoRequest::Kind;

class OrderedSink final : public IoSink {
 public:
  struct Completion {
    uint64_t tag;
    absl::Status status;
    Nanoseconds time;
  };
  explicit OrderedSink(const Clock* clock) : clock_(clock) {}
  void OnIoComplete(uint64_t tag, absl::Status status) override {
    done.push_back({tag, std::move(status), clock_->Now()});
    if (then) std::exchange(then, {})();
  }
  std::vector<uint64_t> tags() const {
    std::vector<uint64_t> result;
    for (const Completion& completion : done) result.push_back(completion.tag);
    return result;
  }
  std::vector<Completion> done;
  std::function<void()> then;  // run once, at the next completion

 private:
  const Clock* clock_;
};

// A drive with its clock, loop, faults and file.
struct Drive {
  explicit Drive(std::vector<Fault> planned, uint64_t seed = 1)
      : loop({.clock = &clock, .seed = seed}), faults(std::move(planned)) {
    PosixFileCalls posix;
    auto scratch = CreateScratchFile(posix, directory.path());
    GANTRY_CHECK_OK(scratch.status());
    file = *std::move(scratch);
    Make({.clock = &clock,
          .loop = &loop,
          .faults = &faults,
          .sink = &sink,
          .latency = 1000,
          .bandwidth_bytes_per_second = 1'000'000'000,
          .queue_depth = 4});
  }
  void Make(const SimulatedIo::Options& options) {
    auto made = SimulatedIo::Create(options);
    GANTRY_CHECK_OK(made.status());
    io = *std::move(made);
  }
  IoRequest Request(Kind kind, int64_t offset, const AlignedBlock& block, uint64_t tag) const {
    return {.kind = kind, .fd = file.get(), .offset = offset, .buffer = block.span(), .tag = tag};
  }
  absl::Status Run(const IoRequest& request) {
    const size_t before = sink.done.size();
    io->Submit(request);
    EXPECT_EQ(sink.done.size(), before);  // never inline
    while (sink.done.size() == before) GANTRY_CHECK(loop.RunNext());
    return sink.done.back().status;
  }
  void RunAll() {
    while (loop.RunNext()) {
    }
  }

  TemporaryDirectory directory;
  VirtualClock clock;
  EventLoop loop;
  FaultPlan faults;
  OrderedSink sink{&clock};
  FileDescriptor file;
  std::unique_ptr<SimulatedIo> io;
};

TEST(SimulatedIo, MovesRealBytesInVirtualTime) {
  Drive drive({});
  AlignedBlock written(3 * kPieceBytes + 5000);
  written.Fill(7);
  std::vector<uint64_t> hashes(4);
  IoRequest request = drive.Request(Kind::kWrite, 4096, written, 1);
  request.piece_hashes = hashes;
  ASSERT_THAT(drive.Run(request), IsOk());
  EXPECT_EQ(hashes[3], Hash64(written.part(3 * kPieceBytes, 5000)));
  EXPECT_GE(drive.clock.Now(), 3 * kPieceBytes + 5000 + 500);
  EXPECT_LT(drive.clock.Now(), 3 * kPieceBytes + 5000 + 1500);
  AlignedBlock read(3 * kPieceBytes + 5000);
  request.kind = Kind::kRead;
  request.buffer = read.span();
  const std::vector<uint64_t> expected = std::exchange(hashes, std::vector<uint64_t>(4));
  request.piece_hashes = hashes;
  ASSERT_THAT(drive.Run(request), IsOk());
  EXPECT_TRUE(std::ranges::equal(read.span(), written.span()));
  EXPECT_EQ(hashes, expected);
  ASSERT_THAT(
      drive.Run({.kind = Kind::kSync, .fd = drive.file.get(), .offset = 0, .buffer = {}, .tag = 2}),
      IsOk());
  EXPECT_EQ(drive.faults.operations(FaultPoint::kSync), 1);
  AlignedBlock nothing(0);
  ASSERT_THAT(drive.Run(drive.Request(Kind::kRead, 0, nothing, 3)), IsOk());
  EXPECT_EQ(drive.io->counters().pieces, 4 + 4 + 1);
  EXPECT_EQ(drive.io->counters().requests, 4);
  EXPECT_EQ(drive.io->counters().bytes_written, 3 * kPieceBytes + 5000);
}

// One piece at a time: by priority, then in order; nothing overtakes what has started.
TEST(SimulatedIo, UrgentAndPromotedRequestsGoFirstAndWaitingOnesAreCancelled) {
  Drive drive({});
  drive.Make({.clock = &drive.clock,
              .loop = &drive.loop,
              .faults = &drive.faults,
              .sink = &drive.sink,
              .latency = 10,
              .queue_depth = 1});
  const AlignedBlock block(2 * kPieceBytes);
  const IoPriority priorities[] = {IoPriority::kWriteBack, IoPriority::kWriteBack,
                                   IoPriority::kPrefetch,  IoPriority::kDemand,
                                   IoPriority::kPrefetch,  IoPriority::kWriteBack};
  for (uint64_t tag = 0; tag < 6; ++tag) {
    IoRequest request = drive.Request(Kind::kWrite, 0, block, tag);
    request.priority = priorities[tag];
    drive.io->Submit(request);
  }
  drive.io->Promote(5, IoPriority::kDemand);
  drive.io->Promote(2, IoPriority::kWriteBack);  // never back
  drive.io->Cancel(4);
  drive.io->Cancel(0);   // started
  drive.io->Cancel(99);  // never known
  EXPECT_TRUE(drive.sink.done.empty());
  drive.RunAll();
  EXPECT_EQ(drive.sink.tags(), (std::vector<uint64_t>{4, 3, 5, 2, 0, 1}));
  EXPECT_EQ(drive.sink.done[0].status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(drive.io->counters().failures, 1);
}

TEST(SimulatedIo, CompletionsMaySubmitAndTheDestructorDrains) {
  Drive drive({});
  const AlignedBlock block(4096);
  SimulatedIo* const io = drive.io.get();
  drive.sink.then = [&, io] { io->Submit(drive.Request(Kind::kRead, 0, block, 2)); };
  drive.io->Submit(drive.Request(Kind::kWrite, 0, block, 1));
  drive.io.reset();
  EXPECT_EQ(drive.sink.tags(), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(drive.loop.pending(), 0);
}

TEST(SimulatedIo, ASeedIsOneOrder) {
  const auto run = [](uint64_t seed) {
    Drive drive({}, seed);
    drive.Make({.clock = &drive.clock,
                .loop = &drive.loop,
                .faults = &drive.faults,
                .sink = &drive.sink,
                .latency = 20'000,
                .bandwidth_bytes_per_second = 1'000'000'000,
                .queue_depth = 4});
    const AlignedBlock block(4096);
    for (uint64_t tag = 0; tag < 40; ++tag) {
      drive.io->Submit(drive.Request(Kind::kWrite, 0, block, tag));
    }
    drive.RunAll();
    return std::pair(drive.sink.tags(), drive.clock.Now());
  };
  EXPECT_EQ(run(1), run(1));
  std::set<std::vector<uint64_t>> orders;
  for (uint64_t seed = 0; seed < 10; ++seed) orders.insert(run(seed).first);
  EXPECT_GT(orders.size(), 8u);
}

TEST(SimulatedIo, FileCallsFallShortComeAgainAndFail) {
  Drive drive(
      {{.point = FaultPoint::kWrite, .first = 0, .effect = FaultEffect::kShort, .salt = 3},
       {.point = FaultPoint::kWrite, .first = 1, .count = 2, .error_number = EAGAIN},
       {.point = FaultPoint::kWrite, .first = 4, .error_number = ENOSPC},
       {.point = FaultPoint::kRead, .first = 1, .effect = FaultEffect::kFlipBit, .salt = 11},
       {.point = FaultPoint::kRead, .first = 2, .error_number = EIO},
       {.point = FaultPoint::kRead, .first = 3, .effect = FaultEffect::kTruncate, .salt = 0}});
  AlignedBlock block(65536);
  block.Fill(3);
  AlignedBlock read(65536);
  ASSERT_THAT(drive.Run(drive.Request(Kind::kWrite, 0, block, 1)), IsOk());
  EXPECT_EQ(drive.io->counters().resubmits, 1);
  EXPECT_EQ(drive.io->counters().retries, 2);
  ASSERT_THAT(drive.Run(drive.Request(Kind::kRead, 0, read, 2)), IsOk());
  EXPECT_TRUE(std::ranges::equal(read.span(), block.span()));
  EXPECT_THAT(drive.Run(drive.Request(Kind::kWrite, 65536, block, 3)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("offset 65536")));
  ASSERT_THAT(drive.Run(drive.Request(Kind::kRead, 0, read, 4)), IsOk());
  EXPECT_FALSE(std::ranges::equal(read.span(), block.span()));
  EXPECT_THAT(drive.Run(drive.Request(Kind::kRead, 0, read, 5)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("EIO")));
  EXPECT_THAT(drive.Run(drive.Request(Kind::kRead, 0, read, 6)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("truncated")));
}

TEST(SimulatedIo, AVanishedDriveFailsEveryRequestFromThenOn) {
  Drive drive(
      {{.point = FaultPoint::kBackend, .first = 0, .effect = FaultEffect::kVanish, .salt = 3}});
  const AlignedBlock block(4096);
  for (uint64_t i = 0; i < 6; ++i) {
    const auto code = i < 3 ? absl::StatusCode::kOk : absl::StatusCode::kUnavailable;
    EXPECT_EQ(drive.Run(drive.Request(Kind::kWrite, 0, block, i)).code(), code) << i;
  }
}

TEST(SimulatedIo, RequestsAndBackendsFailAndDawdle) {
  Drive drive({{.point = FaultPoint::kRequest, .first = 0, .error_number = ENODEV},
               {.point = FaultPoint::kRequest, .first = 1, .effect = FaultEffect::kSlow},
               {.point = FaultPoint::kBackend, .first = 1, .error_number = EPERM}});
  const AlignedBlock block(4096);
  EXPECT_THAT(drive.Run(drive.Request(Kind::kWrite, 0, block, 1)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("ENODEV")));
  EXPECT_EQ(drive.faults.operations(FaultPoint::kWrite), 0);
  const Nanoseconds before = drive.clock.Now();
  EXPECT_THAT(drive.Run(drive.Request(Kind::kWrite, 0, block, 1)), IsOk());
  EXPECT_GT(drive.clock.Now() - before, 50 * 4096);
  EXPECT_THAT(SimulatedIo::Create({.clock = &drive.clock,
                                   .loop = &drive.loop,
                                   .faults = &drive.faults,
                                   .sink = &drive.sink})
                  .status(),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("EPERM")));
  EXPECT_THAT(SimulatedIo::Create({.clock = &drive.clock,
                                   .loop = &drive.loop,
                                   .faults = &drive.faults,
                                   .sink = &drive.sink,
                                   .queue_depth = 0})
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace gantry
