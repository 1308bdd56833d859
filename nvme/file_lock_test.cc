// Who gets a lock when, and what is said to whom does not get it. Time is virtual: a sleep of the
// waiting side is where another gives its lock back.
#include "nvme/file_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/strings.h"
#include "base/testing/faulty_file_calls.h"
#include "base/testing/status_matchers.h"
#include "nvme/testing_support.h"

namespace gantry {
namespace {

// Time goes to where the sleeper wants it; then `on_sleep` is told the count of the sleeps and the
// time.
class SleepCountingClock final : public Clock {
 public:
  explicit SleepCountingClock(std::function<void(int64_t, Nanoseconds)> on_sleep)
      : on_sleep_(std::move(on_sleep)) {}
  Nanoseconds Now() const override { return now_; }
  void SleepUntil(Nanoseconds deadline) override {
    EXPECT_GT(deadline, now_);
    now_ = deadline;
    on_sleep_(++sleeps_, now_);
  }
  int64_t sleeps() const { return sleeps_; }

 private:
  std::function<void(int64_t, Nanoseconds)> on_sleep_;
  Nanoseconds now_ = 0;
  int64_t sleeps_ = 0;
};

class FileLockTest : public ::testing::Test {
 protected:
  // Each its own open file, as in two processes.
  FileDescriptor Open() const {
    FileDescriptor fd(open(directory_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    EXPECT_TRUE(fd.valid());
    return fd;
  }
  OpenedFile Named(const FileDescriptor& fd) const { return {fd.get(), directory_.path()}; }

  TemporaryDirectory directory_;
  PosixFileCalls files_;
  VirtualClock clock_;
};

TEST_F(FileLockTest, SharedLocksGoTogetherExclusiveOnesAlone) {
  using enum LockKind;
  for (const auto& [first, second, both] :
       {std::tuple(kShared, kShared, true), std::tuple(kShared, kExclusive, false),
        std::tuple(kExclusive, kShared, false), std::tuple(kExclusive, kExclusive, false)}) {
    FileDescriptor holder = Open();
    const FileDescriptor other = Open();
    EXPECT_EQ(*TryLock(Named(holder), first), true);
    EXPECT_EQ(*TryLock(Named(other), second), both);
    ASSERT_THAT(holder.Close(), IsOk());
    EXPECT_EQ(*TryLock(Named(other), second), true) << "it goes with the open file";
  }
}

TEST_F(FileLockTest, AFreeLockIsTakenWithoutWaiting) {
  SleepCountingClock clock([](int64_t, Nanoseconds) { ADD_FAILURE() << "waited"; });
  const FileDescriptor fd = Open();
  EXPECT_THAT(Lock(files_, clock, Named(fd), LockKind::kExclusive), IsOk());
  EXPECT_EQ(*TryLock(Named(Open()), LockKind::kShared), false);
}

TEST_F(FileLockTest, WaitsUntilTheLockIsFree) {
  FileDescriptor holder = Open();
  ASSERT_EQ(*TryLock(Named(holder), LockKind::kExclusive), true);
  SleepCountingClock clock([&](int64_t sleeps, Nanoseconds) {
    if (sleeps == 5) holder = FileDescriptor();
  });
  const FileDescriptor fd = Open();
  EXPECT_THAT(Lock(files_, clock, Named(fd), LockKind::kShared), IsOk());
  EXPECT_EQ(clock.sleeps(), 5);
  EXPECT_LT(clock.Now(), 100'000'000) << "the first pauses are short";
}

// The last try comes when all of the time is over, and not before.
TEST_F(FileLockTest, GivesUpAndNamesTheHolder) {
  const FileDescriptor holder = Open();
  ASSERT_EQ(*TryLock(Named(holder), LockKind::kShared), true);
  SleepCountingClock clock([](int64_t, Nanoseconds) {});
  const absl::Status status = Lock(files_, clock, Named(Open()), LockKind::kExclusive);
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kDeadlineExceeded, StrCat("'", directory_.path(), "'")));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded, "and was for 30 s: wait"));
  EXPECT_EQ(clock.Now(), kLockPatience);
  EXPECT_LT(clock.sleeps(), 400) << "the later pauses are long";
  if (access("/proc/locks", R_OK) != 0) GTEST_SKIP() << "no /proc/locks";
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                               StrCat("is locked by process ", getpid(), " (file_lock_test)")));
}

TEST_F(FileLockTest, ALockThatComesFreeInTheLastPauseIsTaken) {
  FileDescriptor holder = Open();
  ASSERT_EQ(*TryLock(Named(holder), LockKind::kExclusive), true);
  SleepCountingClock clock([&](int64_t, Nanoseconds now) {
    if (now == kLockPatience) holder = FileDescriptor();
  });
  EXPECT_THAT(Lock(files_, clock, Named(Open()), LockKind::kExclusive), IsOk());
}

// Where /proc does not tell who it is, the error comes all the same.
TEST_F(FileLockTest, AHolderThatCannotBeNamedIsSaidToBe) {
  const FileDescriptor holder = Open();
  ASSERT_EQ(*TryLock(Named(holder), LockKind::kExclusive), true);
  FaultyFileCalls faulty(&files_);
  faulty.Inject({.kind = FileCallKind::kOpen, .first = 0}, FailCall{EACCES});
  EXPECT_THAT(Lock(faulty, clock_, Named(Open()), LockKind::kShared),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "is locked by a process that can't be told from here"));
  EXPECT_EQ(faulty.faults(), 1);
}

TEST_F(FileLockTest, WhatCannotBeLockedIsAnError) {
  const std::string name = "nothing";
  const OpenedFile closed{-1, name};
  EXPECT_THAT(TryLock(closed, LockKind::kShared),
              StatusIs(absl::StatusCode::kInternal, "'nothing' can't be locked: EBADF"));
  EXPECT_THAT(Lock(files_, clock_, closed, LockKind::kShared),
              StatusIs(absl::StatusCode::kInternal, "EBADF"));
}

}  // namespace
}  // namespace gantry
