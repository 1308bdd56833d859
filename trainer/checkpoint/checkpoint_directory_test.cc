// Names, retention, locking, full disks, and that a killed writer always leaves a whole checkpoint.
#include "trainer/checkpoint/checkpoint_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/random.h"
#include "base/testing/faulty_file_calls.h"
#include "base/testing/status_matchers.h"
#include "chunk/chunk_layout.h"
#include "gemini/testing/memory_store.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/testing/small_store.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CheckpointDirectoryTest : public ::testing::Test {
 protected:
  CheckpointDirectoryTest() : path_(::testing::TempDir() + "checkpoint_directory_test") {
    std::filesystem::remove_all(path_);
    small_ = MakeSmallStore(SmallModel(), kChunkGranularityElements);
    FillStates(*small_.store, 1);
  }

  std::unique_ptr<CheckpointDirectory> Open(int64_t keep) {
    auto directory = CheckpointDirectory::Open({.files = &files_, .path = path_, .keep = keep});
    GANTRY_CHECK_OK(directory.status());
    return *std::move(directory);
  }
  absl::StatusOr<std::string> Save(CheckpointDirectory& directory, int64_t step) {
    return directory.Save(*small_.store, {.step = step, .sequences = 0}, {});
  }
  // Names of all entries of the directory.
  std::set<std::string> Entries() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      if (entry.path().filename() != ".lock") names.insert(entry.path().filename());
    }
    return names;
  }
  std::string List() const { return *ReadFileToString(files_, path_ + "/latest", 1_MiB); }
  void WriteList(const std::string& text) const {
    GANTRY_CHECK_OK(WriteFileAtomically(files_, path_ + "/latest", std::as_bytes(std::span(text))));
  }

  mutable PosixFileCalls files_;
  std::string path_;
  SmallStore small_;
};

TEST_F(CheckpointDirectoryTest, KeepsTheLastN) {
  const auto directory = Open(2);
  for (const int64_t step : {1, 2, 3, 10}) ASSERT_THAT(Save(*directory, step), IsOk());
  EXPECT_THAT(Entries(), ElementsAre("latest", "step-00000003", "step-00000010"));
  EXPECT_EQ(List(), "step-00000010\nstep-00000003\n");
  EXPECT_THAT(directory->names(), ElementsAre("step-00000010", "step-00000003"));
  EXPECT_EQ(Checkpoint::Open(&files_, path_)->manifest().position.step, 10);
}

TEST_F(CheckpointDirectoryTest, KeepOneAndKeepAll) {
  {
    const auto all = Open(0);
    for (const int64_t step : {1, 2, 3}) ASSERT_THAT(Save(*all, step), IsOk());
    EXPECT_EQ(Entries().size(), 4u);
  }
  const auto one = Open(1);
  ASSERT_THAT(Save(*one, 4), IsOk());
  EXPECT_THAT(Entries(), ElementsAre("latest", "step-00000004"));
}

TEST_F(CheckpointDirectoryTest, KeepsTheBestHoweverOld) {
  const auto directory = Open(2);
  EXPECT_EQ(directory->best(), "");
  for (const int64_t step : {1, 2}) ASSERT_THAT(Save(*directory, step), IsOk());
  ASSERT_THAT(directory->MarkNewestBest(), IsOk());
  for (const int64_t step : {3, 4, 5}) ASSERT_THAT(Save(*directory, step), IsOk());
  EXPECT_THAT(Entries(),
              ElementsAre("best", "latest", "step-00000002", "step-00000004", "step-00000005"));
  EXPECT_EQ(Checkpoint::Open(&files_, path_)->manifest().position.step, 5);
  EXPECT_EQ(Checkpoint::Open(&files_, path_ + "/best")->manifest().position.step, 2);
  // A better one: the old best is as old as it is.
  ASSERT_THAT(directory->MarkNewestBest(), IsOk());
  EXPECT_THAT(Entries(), ElementsAre("best", "latest", "step-00000004", "step-00000005"));
  ASSERT_THAT(directory->MarkNewestBest(), IsOk());
  EXPECT_EQ(directory->best(), "step-00000005");
}

TEST_F(CheckpointDirectoryTest, TheNextRunKnowsTheBest) {
  {
    const auto directory = Open(1);
    ASSERT_THAT(Save(*directory, 1), IsOk());
    ASSERT_THAT(directory->MarkNewestBest(), IsOk());
  }
  {
    const auto directory = Open(1);
    EXPECT_EQ(directory->best(), "step-00000001");
    for (const int64_t step : {2, 3}) ASSERT_THAT(Save(*directory, step), IsOk());
    EXPECT_THAT(Entries(), ElementsAre("best", "latest", "step-00000001", "step-00000003"));
  }
  std::filesystem::remove_all(path_ + "/step-00000001");
  EXPECT_EQ(Open(1)->best(), "");
  EXPECT_THAT(Checkpoint::Open(&files_, path_ + "/best"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("gone")));
  std::ofstream(path_ + "/best") << "../../secrets";
  EXPECT_THAT(CheckpointDirectory::Open({.files = &files_, .path = path_, .keep = 1}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("names no checkpoint")));
}

// A crash before `best` is written leaves the older best, which no rotation has removed yet.
TEST_F(CheckpointDirectoryTest, AFailureToNameTheBestKeepsTheOldOne) {
  FaultyFileCalls faulty(&files_);
  auto directory = CheckpointDirectory::Open({.files = &faulty, .path = path_, .keep = 1});
  ASSERT_THAT(directory, IsOk());
  ASSERT_THAT(Save(**directory, 1), IsOk());
  ASSERT_THAT((*directory)->MarkNewestBest(), IsOk());
  ASSERT_THAT(Save(**directory, 2), IsOk());
  faulty.Inject({.kind = FileCallKind::kRename, .first = faulty.calls(FileCallKind::kRename)},
                FailCall{EIO});
  EXPECT_FALSE((*directory)->MarkNewestBest().ok());
  EXPECT_EQ((*directory)->best(), "step-00000001");
  EXPECT_EQ(Checkpoint::Open(&files_, path_ + "/best")->manifest().position.step, 1);
  ASSERT_THAT((*directory)->MarkNewestBest(), IsOk());
  EXPECT_THAT(Entries(), ElementsAre("best", "latest", "step-00000002"));
}

TEST_F(CheckpointDirectoryTest, GoingBackKeepsTheNewestWritten) {
  const auto directory = Open(2);
  for (const int64_t step : {5, 10, 6}) ASSERT_THAT(Save(*directory, step), IsOk());
  EXPECT_EQ(Checkpoint::Open(&files_, path_)->manifest().position.step, 6);
  ASSERT_THAT(Save(*directory, 10), IsOk());
  EXPECT_EQ(List(), "step-00000010.1\nstep-00000006\n");
  EXPECT_EQ(Checkpoint::Open(&files_, path_)->manifest().position.step, 10);
}

TEST_F(CheckpointDirectoryTest, LongStepsAndParentsThatAreMissing) {
  path_ += "/a/b";
  const auto directory = Open(1);
  EXPECT_THAT(Save(*directory, 123456789012), IsOkAndHolds(path_ + "/step-123456789012"));
  EXPECT_THAT(ListCheckpoints(files_, path_), IsOkAndHolds(ElementsAre("step-123456789012")));
}

TEST_F(CheckpointDirectoryTest, FindsCheckpointsWithoutAList) {
  for (const int64_t step : {2, 9, 5}) ASSERT_THAT(Save(*Open(0), step), IsOk());
  ASSERT_EQ(unlink((path_ + "/latest").c_str()), 0);
  EXPECT_THAT(ListCheckpoints(files_, path_),
              IsOkAndHolds(ElementsAre("step-00000009", "step-00000005", "step-00000002")));
  // One that somebody copied there comes last, and goes first.
  WriteList("step-00000005\n");
  EXPECT_THAT(ListCheckpoints(files_, path_),
              IsOkAndHolds(ElementsAre("step-00000005", "step-00000009", "step-00000002")));
  ASSERT_THAT(Save(*Open(2), 6), IsOk());
  EXPECT_THAT(Entries(), ElementsAre("latest", "step-00000005", "step-00000006"));
}

TEST_F(CheckpointDirectoryTest, ListedOnesThatAreGoneAreSkipped) {
  ASSERT_THAT(Save(*Open(0), 2), IsOk());
  WriteList("step-00000007\nstep-00000002\n");
  EXPECT_EQ(Checkpoint::Open(&files_, path_)->manifest().position.step, 2);
}

TEST_F(CheckpointDirectoryTest, AListThatLeadsElsewhereIsRefused) {
  ASSERT_THAT(Save(*Open(0), 2), IsOk());
  for (const char* text : {"../step-00000002\n", "/etc\n", "step-2\n", "step-00000002/..\n",
                           "step-00000002.0\n", "step-00000002.\n", "step--0000002\n",
                           "step-99999999999999999999\n", "\n", " step-00000002\n"}) {
    SCOPED_TRACE(text);
    WriteList(text);
    EXPECT_THAT(Checkpoint::Open(&files_, path_),
                StatusIs(absl::StatusCode::kDataLoss, "is damaged"));
    EXPECT_THAT(CheckpointDirectory::Open({.files = &files_, .path = path_, .keep = 1}),
                StatusIs(absl::StatusCode::kDataLoss, "is damaged"));
  }
}

TEST_F(CheckpointDirectoryTest, OneWriterAtATime) {
  auto first = Open(1);
  EXPECT_THAT(CheckpointDirectory::Open({.files = &files_, .path = path_, .keep = 1}),
              StatusIs(absl::StatusCode::kUnavailable, "another run writes"));
  ASSERT_THAT(Save(*first, 1), IsOk());
  EXPECT_THAT(Checkpoint::Open(&files_, path_), IsOk());  // reading needs no lock
  first.reset();
  EXPECT_THAT(CheckpointDirectory::Open({.files = &files_, .path = path_, .keep = 1}), IsOk());
}

TEST_F(CheckpointDirectoryTest, RefusesPlacesThatCannotHoldOne) {
  EXPECT_THAT(CheckpointDirectory::Open({.files = &files_, .path = path_, .keep = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckpointDirectory::Open({.files = &files_, .path = "/proc/none", .keep = 1}),
              StatusIs(absl::StatusCode::kNotFound, "/proc/none"));
  GANTRY_CHECK_OK(WriteFileAtomically(files_, path_, {}));
  EXPECT_THAT(CheckpointDirectory::Open({.files = &files_, .path = path_, .keep = 1}),
              StatusIs(absl::StatusCode::kAlreadyExists, "checkpoint_directory_test"));
  std::filesystem::remove_all(path_);
}

TEST_F(CheckpointDirectoryTest, LeftoversOfACrashGo) {
  ASSERT_THAT(Save(*Open(1), 1), IsOk());
  for (const char* name : {"/.writing", "/.removing"}) {
    ASSERT_EQ(mkdir((path_ + name).c_str(), 0700), 0);
    GANTRY_CHECK_OK(WriteFileAtomically(files_, path_ + name + "/state.bin", {}));
  }
  GANTRY_CHECK_OK(WriteFileAtomically(files_, path_ + "/.gantry-0123.tmp", {}));
  Open(1);
  EXPECT_THAT(Entries(), ElementsAre("latest", "step-00000001"));
}

// A file-size limit stands in for a full disk: the write fails half way.
TEST_F(CheckpointDirectoryTest, AFailedWriteLeavesTheOldOne) {
  const auto directory = Open(1);
  ASSERT_THAT(Save(*directory, 1), IsOk());
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit = {.rlim_cur = 700, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto failed = Save(*directory, 2);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(failed, StatusIs(absl::StatusCode::kInternal, "EFBIG"));
  EXPECT_THAT(Entries(), ElementsAre("latest", "step-00000001"));
  EXPECT_EQ(Checkpoint::Open(&files_, path_)->manifest().position.step, 1);
  EXPECT_THAT(Save(*directory, 2), IsOk());
}

extern "C" void KillSelf(int) { kill(getpid(), SIGKILL); }

// Saves checkpoints until a timer kills the process; *done is the last step saved.
[[noreturn]] void SaveUntilKilled(CheckpointDirectory& directory, MemoryStore& store,
                                  volatile int64_t* done, int64_t microseconds) {
  signal(SIGALRM, KillSelf);
  const itimerval timer = {
      .it_interval = {},
      .it_value = {.tv_sec = microseconds / 1'000'000, .tv_usec = microseconds % 1'000'000}};
  if (setitimer(ITIMER_REAL, &timer, nullptr) != 0) _exit(1);
  for (;;) {
    const int64_t step = *done + 1;
    FillStates(store, static_cast<uint64_t>(step));
    if (!directory.Save(store, {.step = step, .sequences = step}, {}).ok()) _exit(2);
    *done = step;
  }
}

TEST_F(CheckpointDirectoryTest, AKilledWriterLeavesAWholeCheckpoint) {
  constexpr uint64_t kSeed = 4711;
  constexpr int64_t kRounds = 60;
  SCOPED_TRACE(kSeed);
  const Random random({.seed = kSeed, .stream = 0});
  auto* const done = static_cast<volatile int64_t*>(
      mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<volatile void*>(done), MAP_FAILED);
  ASSERT_THAT(Save(*Open(2), 0), IsOk());
  SmallStore target = MakeSmallStore(SmallModel(), kChunkGranularityElements);
  for (int64_t round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    const int64_t delay = 1 + random.Below(30'000, static_cast<uint64_t>(round));
    const auto child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) SaveUntilKilled(*Open(2), *small_.store, done, delay);
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL) << state;

    const auto checkpoint = Checkpoint::Open(&files_, path_);
    ASSERT_THAT(checkpoint, IsOk());
    const int64_t step = checkpoint->manifest().position.step;
    ASSERT_GE(step, *done);
    ASSERT_LE(step, *done + 1);
    ASSERT_THAT(checkpoint->Restore(*target.store), IsOk());
    if (step > 0) FillStates(*small_.store, static_cast<uint64_t>(step));
    ASSERT_EQ(AllStates(*target.store), AllStates(*small_.store));
    *done = step;
  }
  EXPECT_GT(*done, 0) << "no child lived long enough to save";
  ASSERT_THAT(Save(*Open(2), *done + 1), IsOk());
  EXPECT_EQ(Entries().size(), 3u) << "leftovers";
  munmap(const_cast<int64_t*>(done), sizeof(int64_t));
}

}  // namespace
}  // namespace gantry
