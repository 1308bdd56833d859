#include "trainer/cli/exit_check.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/testing/faulty_file_calls.h"
#include "nvme/run_directory.h"

namespace gantry {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class ExitCheckTest : public ::testing::Test {
 protected:
  ExitCheckTest() : folder_(::testing::TempDir() + "exit_check_test") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ExitCheck Check(FileCalls* files) {
    return ExitCheck(
        {.files = files, .clock = &clock_, .logger = &logger_, .spill_folders = {folder_}});
  }

  PosixFileCalls files_;
  VirtualClock clock_;
  MemoryLogger logger_;
  std::string folder_;
};

TEST_F(ExitCheckTest, ARunThatGivesAllBackIsNotTalkedOf) {
  ExitCheck check = Check(&files_);
  {
    const auto run = RunDirectory::Create(&files_, clock_, folder_);
    GANTRY_CHECK_OK(run.status());
    GANTRY_CHECK_OK((*run)->CreateFile("blocks", 0).status());
  }
  EXPECT_THAT(check.Finish(), IsEmpty());
  EXPECT_THAT(logger_.messages(), IsEmpty());
  EXPECT_EQ(clock_.Now(), 0) << "no need to wait";
}

TEST_F(ExitCheckTest, WhatIsLeftIsNamedInOneWarning) {
  ExitCheck check = Check(&files_);
  const auto run = RunDirectory::Create(&files_, clock_, folder_);
  GANTRY_CHECK_OK(run.status());
  const auto file = (*run)->CreateFile("blocks", 0);
  GANTRY_CHECK_OK(file.status());
  const auto left = check.Finish();
  const std::string path = (*run)->path();
  // The parent, the directory, its lock, the file; and the directory by its name.
  EXPECT_THAT(left, SizeIs(5));
  EXPECT_THAT(left, ::testing::Contains(path));
  EXPECT_THAT(left, ::testing::Contains(
                        StrCat("descriptor ", file->get(), " of ", path, "/blocks (deleted)")));
  ASSERT_THAT(logger_.messages(), SizeIs(1));
  EXPECT_THAT(logger_.messages()[0], ::testing::StartsWith("warning: the run left behind "));
  EXPECT_THAT(logger_.messages()[0], ::testing::HasSubstr(path + "/lock"));
  EXPECT_GE(clock_.Now(), 1'000'000'000) << "what goes late is waited for";
}

// Gives back what it holds at the third pause, as the kernel does some things late.
class LateClock final : public Clock {
 public:
  void Hold(FileDescriptor file) { file_ = std::move(file); }
  int pauses() const { return pauses_; }
  Nanoseconds Now() const override { return time_.Now(); }
  void SleepUntil(Nanoseconds deadline) override {
    time_.SleepUntil(deadline);
    if (++pauses_ == 3) file_ = FileDescriptor();
  }

 private:
  VirtualClock time_;
  FileDescriptor file_;
  int pauses_ = 0;
};

TEST_F(ExitCheckTest, WhatGoesLateIsWaitedFor) {
  LateClock clock;
  ExitCheck check({.files = &files_, .clock = &clock, .logger = &logger_, .spill_folders = {}});
  clock.Hold(FileDescriptor(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  EXPECT_THAT(check.Finish(), IsEmpty());
  EXPECT_EQ(clock.pauses(), 3);
  EXPECT_THAT(logger_.messages(), IsEmpty());
}

TEST_F(ExitCheckTest, WhereTheSystemDoesNotTellNothingIsChecked) {
  FaultyFileCalls faulty(&files_);
  faulty.Inject({.kind = FileCallKind::kOpen, .first = 0}, FailCall{EACCES});
  ExitCheck blind = Check(&faulty);
  const FileDescriptor leaked(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_THAT(blind.Finish(), IsEmpty());
  EXPECT_THAT(logger_.messages(), IsEmpty());
}

}  // namespace
}  // namespace gantry
