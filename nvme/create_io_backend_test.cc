// The choice of the backend: where io_uring is allowed, and in a child where seccomp forbids it the
// way containers do.
#include "nvme/create_io_backend.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <memory>
#include <string>

#include "base/file_calls.h"
#include "base/log.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "nvme/describe.h"
#include "nvme/io_ring.h"
#include "nvme/scratch_file.h"
#include "nvme/testing_support.h"

namespace gantry {
namespace {

using Kind = IoRequest::Kind;

class CreateIoBackendTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<IoBackend>> Create(IoPreference preference) {
    return CreateIoBackend({.sink = &sink_,
                            .preference = preference,
                            .directory = directory_.path(),
                            .logger = &logger_,
                            .files = &posix_});
  }
  void ExpectWorks(IoBackend& backend) {
    PosixFileCalls files;
    auto file = CreateScratchFile(files, directory_.path());
    ASSERT_TRUE(file.ok());
    AlignedBlock written(3'000'000);
    written.Fill(8);
    AlignedBlock read(3'000'000);
    EXPECT_TRUE(Transfer(backend, sink_,
                         {.kind = Kind::kWrite,
                          .fd = file->get(),
                          .offset = 7,
                          .buffer = written.span(),
                          .tag = 1})
                    .ok());
    EXPECT_TRUE(
        Transfer(
            backend, sink_,
            {.kind = Kind::kRead, .fd = file->get(), .offset = 7, .buffer = read.span(), .tag = 2})
            .ok());
    EXPECT_TRUE(std::ranges::equal(read.span(), written.span()));
  }

  TemporaryDirectory directory_;
  MemoryLogger logger_;
  PosixFileCalls posix_;
  WaitingSink sink_;
};

TEST_F(CreateIoBackendTest, ThreadsOnRequest) {
  auto backend = Create(IoPreference::kThreads);
  ASSERT_TRUE(backend.ok()) << backend.status().ToString();
  EXPECT_EQ((*backend)->name(), "threads");
  ExpectWorks(**backend);
  EXPECT_TRUE(logger_.messages().empty());
  EXPECT_TRUE(ListDirectory(directory_.path()).empty());
}

TEST_F(CreateIoBackendTest, AutoPrefersIoUring) {
  if (auto ring = Create(IoPreference::kIoUring); !ring.ok()) {
    GTEST_SKIP() << ring.status().ToString();
  }
  auto backend = Create(IoPreference::kAuto);
  ASSERT_TRUE(backend.ok()) << backend.status().ToString();
  EXPECT_EQ((*backend)->name(), "io_uring");
  ExpectWorks(**backend);
  EXPECT_TRUE(logger_.messages().empty());
  EXPECT_EQ((*backend)->counters().requests, 2);  // the trial is not in its counters
  EXPECT_TRUE(ListDirectory(directory_.path()).empty());
}

class RefusedTest : public CreateIoBackendTest, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Errnos, RefusedTest, testing::Values(EPERM, ENOSYS));

TEST_P(RefusedTest, AutoFallsBackAndIoUringSaysWhy) {
  const int result = RunInChild([&] {
    if (!RefuseSystemCall(SYS_io_uring_setup, GetParam())) {
      std::cout << "no seccomp filter can be installed: " << DescribeErrno(errno) << "\n";
      return kCannot;
    }
    const std::string name = DescribeErrno(GetParam());
    auto backend = Create(IoPreference::kAuto);
    EXPECT_TRUE(backend.ok()) << backend.status().ToString();
    if (!backend.ok()) return 1;
    EXPECT_EQ((*backend)->name(), "threads");
    ExpectWorks(**backend);
    EXPECT_EQ(logger_.messages().size(), 1u);
    for (const std::string& message : logger_.messages()) {
      EXPECT_NE(message.find(name), std::string::npos) << message;
      EXPECT_NE(message.find("16 pread/pwrite threads"), std::string::npos) << message;
    }
    const absl::Status refused = Create(IoPreference::kIoUring).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(FromAbsl(refused.message()).find(name), std::string_view::npos) << refused.ToString();
    EXPECT_NE(FromAbsl(refused.message()).find("kernel.io_uring_disabled"), std::string_view::npos);
    return 0;
  });
  if (result == kCannot) GTEST_SKIP() << "seccomp is not available";
  EXPECT_EQ(result, 0);
}

TEST_F(CreateIoBackendTest, BadDirectoryAndNumbers) {
  for (IoPreference preference :
       {IoPreference::kAuto, IoPreference::kIoUring, IoPreference::kThreads}) {
    EXPECT_TRUE(absl::IsNotFound(CreateIoBackend({.sink = &sink_,
                                                  .preference = preference,
                                                  .directory = directory_.path() + "/missing",
                                                  .logger = &logger_,
                                                  .files = &posix_})
                                     .status()));
    EXPECT_TRUE(absl::IsInvalidArgument(CreateIoBackend({.sink = &sink_,
                                                         .queue_depth = 0,
                                                         .preference = preference,
                                                         .directory = directory_.path(),
                                                         .logger = &logger_,
                                                         .files = &posix_})
                                            .status()));
  }
  // Out of range for a ring: an error, not a reason to use threads.
  EXPECT_TRUE(absl::IsInvalidArgument(CreateIoBackend({.sink = &sink_,
                                                       .queue_depth = 5000,
                                                       .preference = IoPreference::kAuto,
                                                       .directory = directory_.path(),
                                                       .logger = &logger_,
                                                       .files = &posix_})
                                          .status()));
  EXPECT_TRUE(logger_.messages().empty());
}

TEST_F(CreateIoBackendTest, NothingLeaks) {
  const int64_t before = OpenDescriptors();
  for (int i = 0; i < 200; ++i) {
    auto backend = Create(i % 2 == 0 ? IoPreference::kAuto : IoPreference::kThreads);
    ASSERT_TRUE(backend.ok()) << i << backend.status().ToString();
  }
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_TRUE(ListDirectory(directory_.path()).empty());
}

}  // namespace
}  // namespace gantry
