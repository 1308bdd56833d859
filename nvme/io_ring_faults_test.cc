// The ring when its completions are short or failing. The linker routes the calls that enter the
// ring through this file (-Wl,--wrap), which changes results in the completion queue, real and
// mapped writable, before the ring's loop sees them.
#include <fcntl.h>
#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "nvme/io_backend.h"
#include "nvme/io_ring.h"
#include "nvme/request_progress.h"
#include "nvme/scratch_file.h"
#include "nvme/testing_support.h"

namespace gantry {
namespace {

using Kind = IoRequest::Kind;

// What the result of piece completion `index` (from 0) becomes. Must not exceed `result`.
using Fault = std::function<int(int64_t index, int result)>;

// Process-wide because the linker's wrap is.
class Faults {
 public:
  static Faults& Get() {
    static Faults faults;
    return faults;
  }
  void Set(Fault fault) {
    MutexLock lock(mutex_);
    fault_ = std::move(fault);
    completions_ = 0;
  }
  int64_t completions() {
    MutexLock lock(mutex_);
    return completions_;
  }
  void Apply(io_uring* ring) {
    constexpr uint64_t kPiecesMax = 4096;  // other user_data is the loop's own
    MutexLock lock(mutex_);
    unsigned head = 0;
    io_uring_cqe* completion = nullptr;
    io_uring_for_each_cqe(ring, head, completion) {
      if (completion->user_data >= kPiecesMax) continue;
      if (fault_) completion->res = fault_(completions_, completion->res);
      ++completions_;
    }
  }

 private:
  Mutex mutex_;
  Fault fault_ GANTRY_GUARDED_BY(mutex_);
  int64_t completions_ GANTRY_GUARDED_BY(mutex_) = 0;
};

}  // namespace
}  // namespace gantry

// NOLINTBEGIN(bugprone-reserved-identifier): the linker prescribes these names.
extern "C" {
int __real_io_uring_submit_and_get_events(io_uring* ring);
int __wrap_io_uring_submit_and_get_events(io_uring* ring) {
  const int result = __real_io_uring_submit_and_get_events(ring);
  gantry::Faults::Get().Apply(ring);
  return result;
}
int __real_io_uring_submit_and_wait(io_uring* ring, unsigned count);
int __wrap_io_uring_submit_and_wait(io_uring* ring, unsigned count) {
  const int result = __real_io_uring_submit_and_wait(ring, count);
  gantry::Faults::Get().Apply(ring);
  return result;
}
int __real_io_uring_submit_and_wait_timeout(io_uring* ring, io_uring_cqe** first, unsigned count,
                                            __kernel_timespec* timeout, sigset_t* mask);
int __wrap_io_uring_submit_and_wait_timeout(io_uring* ring, io_uring_cqe** first, unsigned count,
                                            __kernel_timespec* timeout, sigset_t* mask) {
  const int result = __real_io_uring_submit_and_wait_timeout(ring, first, count, timeout, mask);
  gantry::Faults::Get().Apply(ring);
  return result;
}
}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)

namespace gantry {
namespace {

class IoRingFaultsTest : public testing::Test {
 protected:
  IoRingFaultsTest() {
    auto ring = IoRing::Create({.sink = &sink_, .queue_depth = 4});
    EXPECT_TRUE(ring.ok()) << ring.status().ToString();
    ring_ = *std::move(ring);
    PosixFileCalls files;
    auto file = CreateScratchFile(files, directory_.path());
    EXPECT_TRUE(file.ok());
    file_ = *std::move(file);
  }
  ~IoRingFaultsTest() override { Faults::Get().Set(nullptr); }
  absl::Status Run(Kind kind, const AlignedBlock& block, int64_t alignment = 1) {
    return Transfer(*ring_, sink_,
                    {.kind = kind,
                     .fd = file_.get(),
                     .offset = 0,
                     .buffer = block.span(),
                     .alignment = alignment,
                     .tag = ++tag_});
  }

  TemporaryDirectory directory_;
  FileDescriptor file_;
  WaitingSink sink_;
  uint64_t tag_ = 0;
  std::unique_ptr<IoRing> ring_;
};

// The ring must go on from what was reported, again and again, and end with the right bytes.
TEST_F(IoRingFaultsTest, ShortCompletionsAreResumed) {
  constexpr uint64_t kSeed = 90125;
  SCOPED_TRACE(StrCat("seed ", kSeed));
  const Random random({.seed = kSeed, .stream = 0});
  for (int64_t alignment : {1, 4096}) {
    AlignedBlock written(3 * kPieceBytes + 8192);
    written.Fill(kSeed);
    AlignedBlock read(3 * kPieceBytes + 8192);
    auto shorten = [&](int64_t index, int result) {
      const bool whole = index % 3 == 2 || result <= 0;
      return whole ? result
                   : 1 + static_cast<int>(random.Below(result, static_cast<uint64_t>(index)));
    };
    Faults::Get().Set(shorten);
    ASSERT_EQ(ftruncate(file_.get(), 0), 0);
    const int64_t before = ring_->counters().resubmits;
    absl::Status status = Run(Kind::kWrite, written, alignment);
    ASSERT_TRUE(status.ok()) << status.ToString();
    status = Run(Kind::kRead, read, alignment);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(std::ranges::equal(read.span(), written.span()));
    EXPECT_GT(ring_->counters().resubmits, before + 4);
    EXPECT_EQ(ring_->counters().failures, 0);
  }
}

TEST_F(IoRingFaultsTest, RefusalsAreRetried) {
  AlignedBlock written(6 * kPieceBytes);  // more pieces than the ring has room for
  written.Fill(3);
  Faults::Get().Set([](int64_t index, int result) {
    return index < 20 ? (index % 2 == 0 ? -EAGAIN : -EINTR) : result;
  });
  const absl::Status status = Run(Kind::kWrite, written);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(ring_->counters().retries, 20);
  AlignedBlock read(6 * kPieceBytes);
  ASSERT_TRUE(Run(Kind::kRead, read).ok());
  EXPECT_TRUE(std::ranges::equal(read.span(), written.span()));
}

TEST_F(IoRingFaultsTest, RefusalsAreBounded) {
  AlignedBlock block(4096);
  Faults::Get().Set([](int64_t, int) { return -EAGAIN; });
  const absl::Status status = Run(Kind::kWrite, block);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status.ToString();
  EXPECT_EQ(ring_->counters().retries, kRetriesMax);
  Faults::Get().Set(nullptr);
  EXPECT_TRUE(Run(Kind::kWrite, block).ok());
}

// The n-th completion fails, for every n: one typed error that names the place, every other piece
// is waited for, and the ring goes on.
TEST_F(IoRingFaultsTest, EveryCompletionMayFail) {
  AlignedBlock block(6 * kPieceBytes);
  for (int64_t n = 0; n < 6; ++n) {
    Faults::Get().Set([n](int64_t index, int result) { return index == n ? -EIO : result; });
    const absl::Status status = Run(Kind::kWrite, block);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << n << ": " << status.ToString();
    EXPECT_NE(FromAbsl(status.message()).find(directory_.path()), std::string_view::npos);
    EXPECT_GE(Faults::Get().completions(), n + 1);
    Faults::Get().Set(nullptr);
    EXPECT_TRUE(Run(Kind::kWrite, block).ok()) << n;
    EXPECT_EQ(Faults::Get().completions(), 6) << n;  // none left over from the failed one
  }
  EXPECT_EQ(ring_->counters().failures, 6);
}

TEST_F(IoRingFaultsTest, DestructorDrainsRetries) {
  AlignedBlock block(2 * kPieceBytes);
  Faults::Get().Set([](int64_t index, int result) { return index < 10 ? -EAGAIN : result; });
  ring_->Submit(
      {.kind = Kind::kWrite, .fd = file_.get(), .offset = 0, .buffer = block.span(), .tag = 7});
  ring_.reset();
  EXPECT_TRUE(sink_.Take(7).ok());
}

}  // namespace
}  // namespace gantry
