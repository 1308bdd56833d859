// Goal: whatever call of a save fails, falls short or lies, the directory holds whole checkpoints
// and removable leftovers only, the newest is the old one or the new one to the bit, and the next
// save works. Whatever call of a load fails, it ends with an error or with the right states.
//
// Method: every call of every kind of one real save (of one real load), one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/faulty_file_calls.h"
#include "base/testing/status_matchers.h"
#include "chunk/chunk_layout.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_directory.h"
#include "trainer/checkpoint/testing/small_store.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;

using States = std::vector<std::byte>;

constexpr int64_t kForEver = FaultyCalls::kForEver;

// A save over the real file system that is to go wrong.
struct Sabotage {
  std::optional<FileCallKind> kind;  // nothing: all kinds
  int64_t first;                     // counted from the beginning of the save
  int64_t count;
  FileFault fault;
};

class CheckpointFaultTest : public ::testing::Test {
 protected:
  CheckpointFaultTest()
      : path_(::testing::TempDir() + "checkpoint_fault_test"), prepared_(path_ + ".prepared") {
    std::filesystem::remove_all(path_);
    std::filesystem::remove_all(prepared_);
    small_ = MakeSmallStore(SmallModel(), kChunkGranularityElements);
    target_ = MakeSmallStore(SmallModel(), kChunkGranularityElements);
    old_ = Fill(1);
    SaveTo(prepared_, 1);
    new_ = Fill(2);
  }

  States Fill(uint64_t seed) {
    FillStates(*small_.store, seed);
    return AllStates(*small_.store);
  }
  void SaveTo(const std::string& path, int64_t step) {
    auto directory = CheckpointDirectory::Open({.files = &posix_, .path = path, .keep = 1});
    GANTRY_CHECK_OK(directory.status());
    GANTRY_CHECK_OK((*directory)->Save(*small_.store, {.step = step, .sequences = 0}, {}).status());
  }
  // A directory with the old checkpoint, opened over `files`.
  std::unique_ptr<CheckpointDirectory> OpenOld(FileCalls* files) {
    std::filesystem::remove_all(path_);
    std::filesystem::copy(prepared_, path_, std::filesystem::copy_options::recursive);
    auto directory = CheckpointDirectory::Open({.files = files, .path = path_, .keep = 1});
    GANTRY_CHECK_OK(directory.status());
    return *std::move(directory);
  }
  absl::Status SaveNew(CheckpointDirectory& directory, int64_t step) {
    return directory.Save(*small_.store, {.step = step, .sequences = 0}, {}).status();
  }

  // The calls of one kind that a save makes when nothing goes wrong.
  int64_t CallsOfASave(std::optional<FileCallKind> kind) {
    FaultyFileCalls files(&posix_);
    const auto directory = OpenOld(&files);
    const int64_t before = kind.has_value() ? files.calls(*kind) : files.calls();
    GANTRY_CHECK_OK(SaveNew(*directory, 2));
    return (kind.has_value() ? files.calls(*kind) : files.calls()) - before;
  }

  // The states of the checkpoint at `path` or the newest in it, through calls that work.
  absl::StatusOr<States> Load(FileCalls* files, const std::string& path) {
    GANTRY_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(files, path));
    GANTRY_RETURN_IF_ERROR(checkpoint.Restore(*target_.store));
    return AllStates(*target_.store);
  }
  // Whole checkpoints under checkpoints' names, the list, and what the next save removes.
  void ExpectNothingElseIsLeft() {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("step-")) {
        const auto states = Load(&posix_, entry.path());
        EXPECT_THAT(states, IsOk()) << name;
        EXPECT_TRUE(states.ok() && (*states == old_ || *states == new_)) << name;
      } else {
        EXPECT_TRUE(name == "latest" || name == ".lock" || name == ".writing" ||
                    name == ".removing" || (name.starts_with(".gantry-") && name.ends_with(".tmp")))
            << name;
      }
    }
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  // One save with the fault; returns how it ended. `after` is who makes the next save.
  enum class NextSave { kSameRun, kNextRun };
  absl::Status Try(const Sabotage& sabotage, NextSave next) {
    FaultyFileCalls files(&posix_);
    auto directory = OpenOld(&files);
    const int64_t before = sabotage.kind.has_value() ? files.calls(*sabotage.kind) : files.calls();
    files.Inject({.kind = sabotage.kind, .first = before + sabotage.first, .count = sabotage.count},
                 sabotage.fault);
    const absl::Status saved = SaveNew(*directory, 2);
    EXPECT_GE(files.faults(), 1);
    files.Clear();

    const absl::StatusOr<States> newest = Load(&posix_, path_);
    EXPECT_THAT(newest, IsOk());
    EXPECT_TRUE(newest.ok() && (*newest == new_ || (!saved.ok() && *newest == old_)));
    ExpectNothingElseIsLeft();

    if (next == NextSave::kNextRun) {
      directory.reset();
      auto reopened = CheckpointDirectory::Open({.files = &files, .path = path_, .keep = 1});
      GANTRY_CHECK_OK(reopened.status());
      directory = *std::move(reopened);
    }
    EXPECT_THAT(SaveNew(*directory, 3), IsOk());
    EXPECT_THAT(Names(), ElementsAre(".lock", "latest", "step-00000003"));
    return saved;
  }

  mutable PosixFileCalls posix_;
  std::string path_;
  std::string prepared_;
  SmallStore small_;   // holds the new states
  SmallStore target_;  // for loading
  States old_;
  States new_;
};

// Every call of every kind, once and for ever.
TEST_F(CheckpointFaultTest, WhicheverCallOfASaveFailsOneWholeCheckpointIsThere) {
  struct Case {
    FileCallKind kind;
    std::vector<int> errors;
  };
  const Case cases[] = {{FileCallKind::kOpen, {EIO, EMFILE}},
                        {FileCallKind::kRead, {EIO}},
                        {FileCallKind::kWrite, {EIO, ENOSPC, EDQUOT}},
                        {FileCallKind::kSync, {EIO, ENOSPC}},
                        {FileCallKind::kRename, {EIO, EDQUOT}},
                        {FileCallKind::kMakeDirectory, {ENOSPC, EDQUOT}},
                        {FileCallKind::kUnlink, {EIO}}};
  int64_t failed = 0;
  for (const Case& item : cases) {
    const int64_t calls = CallsOfASave(item.kind);
    for (int64_t n = 0; n < calls; ++n) {
      for (const int error : item.errors) {
        for (const int64_t count : {int64_t{1}, kForEver}) {
          SCOPED_TRACE(StrCat(item.kind, " ", n, " of ", calls, ", errno ", error,
                              count == 1 ? "" : " and all after it"));
          const absl::Status saved =
              Try({.kind = item.kind, .first = n, .count = count, .fault = FailCall{error}},
                  count == 1 ? NextSave::kSameRun : NextSave::kNextRun);
          if (saved.ok()) continue;
          ++failed;
          EXPECT_EQ(saved.code(), ErrnoStatus(error, "").code()) << saved;
        }
      }
    }
  }
  EXPECT_GT(failed, 100);
}

TEST_F(CheckpointFaultTest, WhereverTheDriveGoesAwayOneWholeCheckpointIsThere) {
  const int64_t calls = CallsOfASave({});
  for (int64_t n = 0; n < calls; ++n) {
    SCOPED_TRACE(StrCat("from call ", n, " of ", calls, " on"));
    EXPECT_THAT(Try({.kind = {}, .first = n, .count = kForEver, .fault = FailCall{EIO}},
                    NextSave::kNextRun),
                StatusIs(absl::StatusCode::kDataLoss));
  }
}

TEST_F(CheckpointFaultTest, ShortAndInterruptedWritesAreResumed) {
  const int64_t calls = CallsOfASave(FileCallKind::kWrite);
  for (int64_t n = 0; n < calls; ++n) {
    SCOPED_TRACE(StrCat("write ", n, " of ", calls));
    for (const FileFault& fault :
         {FileFault(ShortenCall{.bytes = 1}), FileFault(FailCall{EINTR})}) {
      EXPECT_THAT(Try({.kind = FileCallKind::kWrite, .first = n, .count = 1, .fault = fault},
                      NextSave::kSameRun),
                  IsOk());
    }
    EXPECT_THAT(Try({.kind = FileCallKind::kWrite,
                     .first = n,
                     .count = 1,
                     .fault = ShortenCall{.bytes = 0}},
                    NextSave::kSameRun),
                StatusIs(absl::StatusCode::kInternal, "takes no more bytes"));
  }
  EXPECT_THAT(Try({.kind = FileCallKind::kWrite,
                   .first = 0,
                   .count = kForEver,
                   .fault = ShortenCall{.bytes = 1000}},
                  NextSave::kSameRun),
              IsOk());
}

// fsync tells of lost pages once: what it was told of is given up, never synced again.
TEST_F(CheckpointFaultTest, AFailedSyncIsTheLastOfItsSave) {
  const int64_t calls = CallsOfASave(FileCallKind::kSync);
  ASSERT_EQ(calls, 6) << "states, manifest, their folder; the directory; the list, the directory";
  for (int64_t n = 0; n < calls; ++n) {
    FaultyFileCalls files(&posix_);
    const auto directory = OpenOld(&files);
    files.Inject({.kind = FileCallKind::kSync, .first = n}, FailCall{EIO});
    EXPECT_THAT(SaveNew(*directory, 2), StatusIs(absl::StatusCode::kDataLoss, "fsync"));
    EXPECT_EQ(files.calls(FileCallKind::kSync), n + 1);
    const auto newest = Load(&posix_, path_);
    ASSERT_THAT(newest, IsOk());
    EXPECT_TRUE(*newest == (n < 5 ? old_ : new_)) << n;
  }
}

// The save cannot know. The load does, and the older checkpoint is still there.
TEST_F(CheckpointFaultTest, LyingWritesAreFoundWhenLoading) {
  const int64_t calls = CallsOfASave(FileCallKind::kWrite);
  const FileFault lies[] = {LoseWrite{}, FlipBit{.bit = 77}, FlipBit{.bit = 1 << 20},
                            MisplaceWrite{.shift = 512}};
  int64_t found = 0;
  for (int64_t n = 0; n < calls; ++n) {
    for (size_t lie = 0; lie < std::size(lies); ++lie) {
      SCOPED_TRACE(StrCat("write ", n, " of ", calls, ", lie ", lie));
      FaultyFileCalls files(&posix_);
      OpenOld(&posix_);
      const auto directory = CheckpointDirectory::Open({.files = &files, .path = path_, .keep = 2});
      ASSERT_THAT(directory, IsOk());
      files.Inject({.kind = FileCallKind::kWrite, .first = n}, lies[lie]);
      ASSERT_THAT(SaveNew(**directory, 2), IsOk());
      const auto newest = Load(&posix_, path_);
      if (newest.ok()) {
        // Only the last write, that of the list, decides no more than which one is taken.
        EXPECT_EQ(n, calls - 1);
        EXPECT_TRUE(*newest == new_ || *newest == old_);
      } else {
        EXPECT_THAT(newest, StatusIs(absl::StatusCode::kDataLoss));
        ++found;
      }
      const auto older = Load(&posix_, path_ + "/step-00000001");
      ASSERT_THAT(older, IsOk());
      EXPECT_TRUE(*older == old_);
    }
  }
  EXPECT_GE(found, (calls - 1) * std::ssize(lies));
}

TEST_F(CheckpointFaultTest, WhicheverCallOfALoadFailsItIsAnErrorOrRight) {
  FaultyFileCalls counting(&posix_);
  ASSERT_THAT(Load(&counting, prepared_), IsOk());
  const FileFault faults[] = {FailCall{EIO}, FailCall{EINTR}, ShortenCall{.bytes = 1},
                              ShortenCall{.bytes = 0}, FlipBit{.bit = 5}};
  int64_t failed = 0;
  for (const FileCallKind kind : {FileCallKind::kOpen, FileCallKind::kRead}) {
    for (int64_t n = 0; n < counting.calls(kind); ++n) {
      for (size_t i = 0; i < std::size(faults); ++i) {
        if (kind == FileCallKind::kOpen && i > 1) continue;
        for (const int64_t count : {int64_t{1}, kForEver}) {
          if (i == 1 && count == kForEver) continue;  // is waited for, for ever
          SCOPED_TRACE(StrCat(kind, " ", n, ", fault ", i, " times ", count));
          FaultyFileCalls files(&posix_);
          files.Inject({.kind = kind, .first = n, .count = count}, faults[i]);
          FillStates(*target_.store, 3);
          const auto states = Load(&files, prepared_);
          EXPECT_GE(files.faults(), 1);
          if (states.ok()) {
            EXPECT_TRUE(*states == old_);
          } else {
            EXPECT_THAT(states, StatusIs(absl::StatusCode::kDataLoss));
            ++failed;
          }
        }
      }
    }
  }
  EXPECT_GT(failed, 30);
}

}  // namespace
}  // namespace gantry
