#include "nvme/fault_injection.h"

#include <algorithm>
#include <memory>
#include <string>

#include "base/file_calls.h"
#include "base/files.h"
#include "base/log.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "nvme/create_io_backend.h"
#include "nvme/scratch_file.h"
#include "nvme/testing_support.h"

namespace gantry {
namespace {

using Kind = IoRequest::Kind;

class FaultyIoBackendTest : public testing::Test {
 protected:
  FaultyIoBackendTest() {
    PosixFileCalls files;
    auto file = CreateScratchFile(files, directory_.path());
    EXPECT_TRUE(file.ok());
    file_ = *std::move(file);
    backend_ = std::make_unique<FaultyIoBackend>(
        [&](IoSink* sink) {
          return CreateIoBackend(
              {.sink = sink, .directory = directory_.path(), .logger = &logger_, .files = &posix_});
        },
        &sink_);
    EXPECT_TRUE(backend_->status().ok()) << backend_->status().ToString();
  }
  absl::Status Run(Kind kind, const AlignedBlock& block) {
    return Transfer(
        *backend_, sink_,
        {.kind = kind, .fd = file_.get(), .offset = 0, .buffer = block.span(), .tag = 42});
  }

  TemporaryDirectory directory_;
  MemoryLogger logger_;
  PosixFileCalls posix_;
  FileDescriptor file_;
  WaitingSink sink_;
  std::unique_ptr<FaultyIoBackend> backend_;
};

TEST_F(FaultyIoBackendTest, OnlyTheChosenRequestsFail) {
  AlignedBlock first(4096);
  first.Fill(1);
  AlignedBlock second(4096);
  second.Fill(2);
  backend_->FailRequest(1, ResourceExhausted("injected ENOSPC"));
  backend_->FailRequest(2, Unavailable("injected refusal"));
  backend_->FailRequest(3, DataLoss("injected EIO"));
  EXPECT_TRUE(Run(Kind::kWrite, first).ok());
  EXPECT_EQ(Run(Kind::kWrite, second).message(), "injected ENOSPC");
  EXPECT_EQ(Run(Kind::kWrite, second).message(), "injected refusal");
  AlignedBlock read(4096);
  EXPECT_EQ(Run(Kind::kRead, read).message(), "injected EIO");
  EXPECT_EQ(std::ranges::count(read.span(), FaultyIoBackend::kPoison), 4096);
  EXPECT_TRUE(Run(Kind::kRead, read).ok());
  EXPECT_TRUE(std::ranges::equal(read.span(), first.span()));  // the failed write did nothing
  EXPECT_EQ(backend_->submitted(), 5);
  EXPECT_EQ(sink_.completions(), 5);
}

TEST_F(FaultyIoBackendTest, CancelAndPromoteReachTheirRequest) {
  AlignedBlock block(64 * kPieceBytes);
  IoRequest request = {.kind = Kind::kWrite,
                       .fd = file_.get(),
                       .offset = 0,
                       .buffer = block.span(),
                       .priority = IoPriority::kWriteBack,
                       .tag = 500};
  backend_->Submit(request);
  request.tag = 501;
  backend_->Submit(request);
  backend_->Promote(501, IoPriority::kDemand);
  backend_->Cancel(1);  // not a tag, though the number of the second request
  const absl::Status first = sink_.Take(500);
  EXPECT_TRUE(first.ok()) << first.ToString();
  backend_->Cancel(501);  // may be started, which is as good
  const absl::Status second = sink_.Take(501);
  EXPECT_TRUE(second.ok() || absl::IsCancelled(second)) << second.ToString();
}

TEST(FaultyIoBackendFactoryTest, FactoryErrorIsKept) {
  WaitingSink sink;
  FaultyIoBackend backend(
      [](IoSink*) -> absl::StatusOr<std::unique_ptr<IoBackend>> { return Unavailable("none"); },
      &sink);
  EXPECT_EQ(backend.status().message(), "none");
}

}  // namespace
}  // namespace gantry
