// Faults in single system calls; the common contract is in io_backend_test.cc.
#include "nvme/io_threads.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>

#include "base/file_calls.h"
#include "base/files.h"
#include "base/strings.h"
#include "base/testing/faulty_file_calls.h"
#include "gtest/gtest.h"
#include "nvme/request_progress.h"
#include "nvme/scratch_file.h"
#include "nvme/testing_support.h"

namespace gantry {
namespace {

using Kind = IoRequest::Kind;

class IoThreadsTest : public testing::Test {
 protected:
  // One thread, so that system calls are numbered in order.
  IoThreadsTest() {
    auto backend = IoThreads::Create({.sink = &sink_, .threads = 1, .files = &calls_});
    EXPECT_TRUE(backend.ok());
    backend_ = *std::move(backend);
    auto file = CreateScratchFile(posix_, directory_.path());
    EXPECT_TRUE(file.ok());
    file_ = *std::move(file);
  }
  IoRequest Request(Kind kind, const AlignedBlock& block, int64_t alignment = 1) {
    return {.kind = kind,
            .fd = file_.get(),
            .offset = 4096,
            .buffer = block.span(),
            .alignment = alignment,
            .tag = ++tag_};
  }

  TemporaryDirectory directory_;
  FileDescriptor file_;
  PosixFileCalls posix_;
  FaultyFileCalls calls_{&posix_};
  WaitingSink sink_;
  uint64_t tag_ = 0;
  std::unique_ptr<IoThreads> backend_;
};

TEST_F(IoThreadsTest, ShortTransfersAreResumed) {
  AlignedBlock written(3 * 4096);
  written.Fill(5);
  calls_.Inject({.kind = FileCallKind::kWrite, .first = 0}, ShortenCall{1000});
  calls_.Inject({.kind = FileCallKind::kWrite, .first = 1}, ShortenCall{1});
  calls_.Inject({.kind = FileCallKind::kRead, .first = 0}, ShortenCall{5000});  // resumed at 4096
  const absl::Status write = Transfer(*backend_, sink_, Request(Kind::kWrite, written));
  ASSERT_TRUE(write.ok()) << write.ToString();
  EXPECT_EQ(calls_.calls(), 3);
  AlignedBlock read(3 * 4096);
  const absl::Status status = Transfer(*backend_, sink_, Request(Kind::kRead, read, 4096));
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(calls_.calls(), 5);
  EXPECT_TRUE(std::ranges::equal(read.span(), written.span()));
  EXPECT_EQ(backend_->counters().resubmits, 3);
  EXPECT_EQ(backend_->counters().bytes_written, 3 * 4096);
}

TEST_F(IoThreadsTest, RefusalsAreRetriedAndBounded) {
  AlignedBlock block(4096);
  calls_.Inject({.kind = {}, .first = 0, .count = 3}, FailCall{EAGAIN});
  const absl::Status retried = Transfer(*backend_, sink_, Request(Kind::kWrite, block));
  EXPECT_TRUE(retried.ok()) << retried.ToString();
  EXPECT_EQ(backend_->counters().retries, 3);
  calls_.Inject({.kind = {}, .first = 4, .count = 1'000'000}, FailCall{EAGAIN});
  const absl::Status refused = Transfer(*backend_, sink_, Request(Kind::kWrite, block));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused.ToString();
  EXPECT_EQ(backend_->counters().retries, 3 + kRetriesMax);
}

TEST_F(IoThreadsTest, EioNamesThePlace) {
  AlignedBlock block(3 * kPieceBytes);
  calls_.Inject({.kind = {}, .first = 1}, FailCall{EIO});
  const absl::Status status = Transfer(*backend_, sink_, Request(Kind::kWrite, block));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(FromAbsl(status.message())
                .find(StrCat("write of ", kPieceBytes, " bytes at offset ", kPieceBytes + 4096,
                             " of '", directory_.path(), "/")),
            std::string_view::npos)
      << status.ToString();
  EXPECT_NE(FromAbsl(status.message()).find("EIO"), std::string_view::npos);
  EXPECT_EQ(calls_.calls(), 2);  // the third piece never starts
  // The backend goes on.
  EXPECT_TRUE(Transfer(*backend_, sink_, Request(Kind::kWrite, block)).ok());
  EXPECT_EQ(backend_->counters().failures, 1);
}

// The n-th call fails, for every n: exactly one error, of the right type, and nothing else breaks.
TEST_F(IoThreadsTest, EveryCallMayFail) {
  AlignedBlock block(4 * kPieceBytes);
  for (int64_t n = 0; n < 4; ++n) {
    calls_.Inject({.kind = {}, .first = calls_.calls() + n}, FailCall{ENOSPC});
    const absl::Status status = Transfer(*backend_, sink_, Request(Kind::kWrite, block));
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << n << status.ToString();
    const int64_t calls = calls_.calls();
    EXPECT_TRUE(Transfer(*backend_, sink_, Request(Kind::kWrite, block)).ok()) << n;
    EXPECT_EQ(calls_.calls(), calls + 4);
  }
}

TEST_F(IoThreadsTest, SyncFailureIsReported) {
  calls_.Inject({.kind = {}, .first = 0}, FailCall{EIO});
  const absl::Status status = Transfer(*backend_, sink_, Request(Kind::kSync, AlignedBlock(1)));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(FromAbsl(status.message()).find("sync of '"), 0u) << status.ToString();
}

}  // namespace
}  // namespace gantry
