// Run directories against real processes: two runs in one parent, a killed run, bad parents.
#include "nvme/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/strings.h"
#include "base/testing/faulty_file_calls.h"
#include "gtest/gtest.h"
#include "nvme/run_owner.h"
#include "nvme/testing_support.h"

namespace gantry {
namespace {

bool Contains(const absl::Status& status, std::string_view text) {
  return FromAbsl(status.message()).find(text) != std::string_view::npos;
}

mode_t ModeOf(const std::string& path) {
  struct stat status{};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

std::vector<std::string> PathsOf(const std::vector<StaleRun>& runs) {
  std::vector<std::string> paths;
  for (const StaleRun& run : runs) paths.push_back(run.path);
  return paths;
}

// One byte each way between a test and its child.
struct Pipe {
  Pipe() { EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0); }
  ~Pipe() {
    close(ends[0]);
    close(ends[1]);
  }
  void Signal() { EXPECT_EQ(write(ends[1], "x", 1), 1); }
  void Await() {
    char byte = 0;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
  }
  int ends[2];
};

class RunDirectoryTest : public testing::Test {
 protected:
  PosixFileCalls files_;
  MonotonicClock clock_;
};

TEST_F(RunDirectoryTest, IsPrivateAndRemoved) {
  TemporaryDirectory parent;
  std::string path;
  {
    auto run = RunDirectory::Create(&files_, clock_, parent.path());
    ASSERT_TRUE(run.ok()) << run.status().ToString();
    path = (*run)->path();
    EXPECT_EQ(path.find(StrCat(parent.path(), "/gantry-", getpid(), "-")), 0u) << path;
    EXPECT_EQ(ModeOf(path), 0700u);
    EXPECT_EQ(ModeOf(path + "/lock"), 0600u);
    const std::optional<RunOwner> owner =
        RunOwner::Parse(*ReadFileToString(files_, path + "/lock", 1_KiB));
    ASSERT_TRUE(owner.has_value());
    EXPECT_EQ(owner->pid, getpid());
    EXPECT_TRUE(owner->OnSameMachineAs(RunOwner::Current(files_)));
    EXPECT_EQ(ListDirectory(path), std::vector<std::string>{"lock"});
  }
  EXPECT_TRUE(ListDirectory(parent.path()).empty());
}

TEST_F(RunDirectoryTest, FilesAreUnlinkedAndStayUsable) {
  TemporaryDirectory parent;
  auto run = RunDirectory::Create(&files_, clock_, parent.path());
  ASSERT_TRUE(run.ok());
  auto first = (*run)->CreateFile("blocks", 0);
  auto second = (*run)->CreateFile("blocks", 0);  // the name is free again: another file
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(ListDirectory((*run)->path()), std::vector<std::string>{"lock"});
  ASSERT_EQ(pwrite(first->get(), "1", 1, 0), 1);
  ASSERT_EQ(pwrite(second->get(), "2", 1, 0), 1);
  ASSERT_TRUE((*run)->Remove().ok());
  ASSERT_TRUE((*run)->Remove().ok());
  EXPECT_TRUE(ListDirectory(parent.path()).empty());
  char byte = 0;
  ASSERT_EQ(pread(first->get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, '1');
  struct stat status{};
  ASSERT_EQ(fstat(first->get(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_EQ(status.st_nlink, 0u);
}

TEST_F(RunDirectoryTest, DoesNotFollowOrReplaceWhatIsThere) {
  TemporaryDirectory parent;
  auto run = RunDirectory::Create(&files_, clock_, parent.path());
  ASSERT_TRUE(run.ok());
  const std::string victim = parent.path() + "/victim";
  std::ofstream(victim) << "keep";
  std::filesystem::create_symlink(victim, (*run)->path() + "/blocks");
  EXPECT_FALSE((*run)->CreateFile("blocks", 0).ok());
  std::ifstream file(victim);
  std::string content;
  file >> content;
  EXPECT_EQ(content, "keep");
}

TEST_F(RunDirectoryTest, BadParentsSayWhatToDo) {
  TemporaryDirectory parent;
  const absl::Status missing =
      RunDirectory::Create(&files_, clock_, parent.path() + "/none").status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_TRUE(Contains(missing, "create it")) << missing.ToString();
  const std::string file = parent.path() + "/file";
  std::ofstream(file) << "x";
  const absl::Status plain = RunDirectory::Create(&files_, clock_, file).status();
  EXPECT_TRUE(absl::IsInvalidArgument(plain));
  EXPECT_TRUE(Contains(plain, "not a directory")) << plain.ToString();
  EXPECT_TRUE(Contains(plain, file));
  EXPECT_TRUE(
      absl::IsNotFound(RunDirectory::CleanStale(files_, clock_, parent.path() + "/none").status()));
}

// Runs `check` in a child on a private mount; skips with the reason when that is not possible.
void OnMount(MountOptions options, const std::function<void()>& check) {
  const int result = RunInChild([&] {
    const std::string refused = MountPrivately(options);
    if (!refused.empty()) {
      std::cout << refused << "\n";
      return kCannot;
    }
    check();
    return 0;
  });
  if (result == kCannot) GTEST_SKIP() << options.type << " cannot be mounted here";
  EXPECT_EQ(result, 0);
}

TEST_F(RunDirectoryTest, ReadOnlyParent) {
  TemporaryDirectory parent;
  OnMount({.type = "tmpfs", .path = parent.path(), .data = "size=64k", .read_only = true}, [&] {
    const absl::Status status = RunDirectory::Create(&files_, clock_, parent.path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_TRUE(Contains(status, "read-only file system")) << status.ToString();
  });
}

TEST_F(RunDirectoryTest, FullParent) {
  TemporaryDirectory parent;
  // Two inodes: the root and the run's directory, none for the lock.
  OnMount({.type = "tmpfs", .path = parent.path(), .data = "size=64k,nr_inodes=2"}, [&] {
    const absl::Status status = RunDirectory::Create(&files_, clock_, parent.path()).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status));
    EXPECT_TRUE(Contains(status, "is full")) << status.ToString();
    EXPECT_TRUE(ListDirectory(parent.path()).empty());  // nothing half-made stays
  });
}

TEST_F(RunDirectoryTest, UnwritableParent) {
  TemporaryDirectory parent;
  ASSERT_EQ(chmod(parent.path().c_str(), 0555), 0);
  const int result = RunInChild([&] {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && setuid(kNobody) != 0) return kCannot;
    const absl::Status status = RunDirectory::Create(&files_, clock_, parent.path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_TRUE(Contains(status, StrCat("by user ", geteuid()))) << status.ToString();
    return 0;
  });
  if (result == kCannot) GTEST_SKIP() << "running as root without another user";
  EXPECT_EQ(result, 0);
}

TEST_F(RunDirectoryTest, ForkedChildDoesNotRemoveTheParentsRun) {
  TemporaryDirectory parent;
  auto run = RunDirectory::Create(&files_, clock_, parent.path());
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(RunInChild([&] {
              run->reset();
              return 0;
            }),
            0);
  EXPECT_EQ(ListDirectory((*run)->path()), std::vector<std::string>{"lock"});
}

TEST_F(RunDirectoryTest, CleanStaleLeavesTheLivingAndTheForeign) {
  TemporaryDirectory parent;
  auto run = RunDirectory::Create(&files_, clock_, parent.path());
  ASSERT_TRUE(run.ok());
  // Looks like ours but is not a run: other names, a file, a symbolic link.
  std::filesystem::create_directory(parent.path() + "/gantry-notes");
  std::filesystem::create_directory(parent.path() + "/gantry-12-short");
  std::ofstream(parent.path() + "/gantry-12-0123456789abcdef") << "x";
  TemporaryDirectory elsewhere;
  std::ofstream(elsewhere.path() + "/precious") << "x";
  std::filesystem::create_symlink(elsewhere.path(), parent.path() + "/gantry-13-0123456789abcdef");
  // A run that died before it had its lock.
  const std::string dead = parent.path() + "/gantry-14-0123456789abcdef";
  std::filesystem::create_directory(dead);
  const auto removed = RunDirectory::CleanStale(files_, clock_, parent.path());
  ASSERT_TRUE(removed.ok()) << removed.status().ToString();
  EXPECT_EQ(PathsOf(*removed), std::vector<std::string>{dead});
  EXPECT_EQ(ListDirectory(parent.path()).size(), 5u);
  EXPECT_EQ(ListDirectory((*run)->path()), std::vector<std::string>{"lock"});
  EXPECT_EQ(ListDirectory(elsewhere.path()), std::vector<std::string>{"precious"});
}

TEST_F(RunDirectoryTest, KilledRunLeavesOnlyItsLockAndIsCleaned) {
  TemporaryDirectory parent;
  Pipe ready;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto run = RunDirectory::Create(&files_, clock_, parent.path());
    auto file = (*run)->CreateFile("blocks", 0);
    const std::string data(1 << 20, 'x');
    if (write(file->get(), data.data(), data.size()) == 1 << 20) ready.Signal();
    while (true) pause();
  }
  ready.Await();
  auto alive = RunDirectory::CleanStale(files_, clock_, parent.path());
  ASSERT_TRUE(alive.ok());
  EXPECT_TRUE(alive->empty());
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const std::vector<std::string> left = ListDirectory(parent.path());
  ASSERT_EQ(left.size(), 1u);
  const std::string path = parent.path() + "/" + left[0];
  EXPECT_EQ(ListDirectory(path), std::vector<std::string>{"lock"});
  auto mine = RunDirectory::Create(&files_, clock_, parent.path());
  ASSERT_TRUE(mine.ok());
  auto removed = RunDirectory::CleanStale(files_, clock_, parent.path());
  ASSERT_TRUE(removed.ok());
  EXPECT_EQ(PathsOf(*removed), std::vector<std::string>{path});
  EXPECT_EQ((*removed)[0].owner->pid, child);
  EXPECT_EQ(ListDirectory(parent.path()).size(), 1u);
  EXPECT_EQ(ListDirectory((*mine)->path()), std::vector<std::string>{"lock"});
}

// Gives a lock back when the first sleeper comes, and counts them.
class ReleasingClock final : public Clock {
 public:
  explicit ReleasingClock(FileDescriptor* lock) : lock_(lock) {}
  Nanoseconds Now() const override { return now_; }
  void SleepUntil(Nanoseconds deadline) override {
    now_ = deadline;
    ++sleeps_;
    EXPECT_TRUE(lock_->Close().ok());
  }
  int64_t sleeps() const { return sleeps_; }

 private:
  FileDescriptor* const lock_;
  Nanoseconds now_ = 0;
  int64_t sleeps_ = 0;
};

FileDescriptor OpenAndLock(const std::string& directory, int operation) {
  FileDescriptor fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(flock(fd.get(), operation), 0);
  return fd;
}

// The window between a run's mkdir and its lock, in which it would look dead: while a cleaner holds
// the parent, nothing is created; while a run is created, nothing is cleaned.
TEST_F(RunDirectoryTest, CreationAndCleaningWaitForEachOther) {
  TemporaryDirectory parent;
  FileDescriptor cleaner = OpenAndLock(parent.path(), LOCK_EX);
  ReleasingClock clock(&cleaner);
  auto run = RunDirectory::Create(&files_, clock, parent.path());
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_EQ(clock.sleeps(), 1);
  for (auto* visit : {&RunDirectory::FindStale, &RunDirectory::CleanStale}) {
    FileDescriptor creator = OpenAndLock(parent.path(), LOCK_SH);
    ReleasingClock visit_clock(&creator);
    const auto found = visit(files_, visit_clock, parent.path());
    EXPECT_TRUE(found.ok()) << found.status().ToString();
    EXPECT_EQ(visit_clock.sleeps(), 1);
  }
}

TEST_F(RunDirectoryTest, AParentThatStaysLockedIsAnErrorAndNothingIsMade) {
  TemporaryDirectory parent;
  const FileDescriptor stopped = OpenAndLock(parent.path(), LOCK_EX);
  VirtualClock clock;
  const absl::Status created = RunDirectory::Create(&files_, clock, parent.path()).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(created)) << created.ToString();
  EXPECT_TRUE(Contains(created, parent.path())) << created.ToString();
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(RunDirectory::CleanStale(files_, clock, parent.path()).status()));
  EXPECT_TRUE(ListDirectory(parent.path()).empty());
}

// Creates and destroys runs, checking each time that nobody else uses the same directory.
int CreateRuns(const std::string& parent, int rounds) {
  PosixFileCalls files;
  MonotonicClock clock;
  for (int i = 0; i < rounds; ++i) {
    auto run = RunDirectory::Create(&files, clock, parent);
    if (!run.ok()) {
      std::cerr << run.status().ToString() << "\n";
      return 2;
    }
    auto file = (*run)->CreateFile("blocks", 0);
    if (!file.ok()) {
      std::cerr << file.status().ToString() << "\n";
      return 3;
    }
    const pid_t pid = getpid();
    pid_t read_back = 0;
    if (pwrite(file->get(), &pid, sizeof(pid), 0) != sizeof(pid)) return 4;
    if (pread(file->get(), &read_back, sizeof(read_back), 0) != sizeof(pid)) return 5;
    if (read_back != pid) return 6;
    if (ListDirectory((*run)->path()) != std::vector<std::string>{"lock"}) return 7;
  }
  return 0;
}

TEST_F(RunDirectoryTest, ConcurrentRunsAndCleanersNeverCollide) {
  TemporaryDirectory parent;
  constexpr int kRuns = 4;
  constexpr int kRounds = 50;
  std::vector<pid_t> children;
  for (int i = 0; i < kRuns; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(CreateRuns(parent.path(), kRounds));
    children.push_back(child);
  }
  size_t removed_alive = 0;
  for (pid_t child : children) {
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      auto removed = RunDirectory::CleanStale(files_, clock_, parent.path());
      ASSERT_TRUE(removed.ok()) << removed.status().ToString();
      // A run on its way out may be finished off; one on its way in never (CreateRuns would fail).
      removed_alive += removed->size();
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_LE(removed_alive, static_cast<size_t>(kRuns * kRounds));
  EXPECT_TRUE(ListDirectory(parent.path()).empty());
}

// A directory as a run leaves it, with another text in its lock file.
std::string MakeRun(const std::string& parent, int number, const std::string& lock) {
  const std::string path = StrCat(parent, "/gantry-", number, "-0123456789abcdef");
  std::filesystem::create_directory(path);
  std::ofstream(path + "/lock") << lock;
  return path;
}

TEST_F(RunDirectoryTest, TellsTheDeadFromThoseOfOtherMachines) {
  TemporaryDirectory parent;
  const RunOwner here = RunOwner::Current(files_);
  const auto lock_of = [&](const std::string& host, const std::string& boot) {
    RunOwner owner = here;
    owner.pid = 4711;
    owner.host = host;
    owner.boot = boot;
    owner.started -= 3600;
    return owner.ToLine();
  };
  const std::string same = MakeRun(parent.path(), 1, lock_of(here.host, here.boot));
  const std::string rebooted = MakeRun(parent.path(), 2, lock_of(here.host, "another-boot"));
  const std::string renamed = MakeRun(parent.path(), 3, lock_of("container-7", here.boot));
  const std::string elsewhere = MakeRun(parent.path(), 4, lock_of("worker-9", "another-boot"));
  const std::string unknown = MakeRun(parent.path(), 5, "who knows");
  const std::string empty = MakeRun(parent.path(), 6, "");
  const std::string held = MakeRun(parent.path(), 7, lock_of(here.host, "another-boot"));
  const FileDescriptor holder(open((held + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(holder.get(), LOCK_EX), 0);

  const auto found = RunDirectory::FindStale(files_, clock_, parent.path());
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(PathsOf(*found),
            (std::vector<std::string>{same, rebooted, renamed, elsewhere, unknown, empty}));
  for (size_t i = 0; i < found->size(); ++i) {
    const StaleRun& run = (*found)[i];
    EXPECT_EQ(run.kind == StaleRun::Kind::kElsewhere, i == 3 || i == 4) << run.path;
    EXPECT_EQ(run.owner.has_value(), i < 4) << run.path;
    EXPECT_EQ(run.owner.value_or(here).pid, i < 4 ? 4711 : here.pid);
    EXPECT_GE(run.age, i < 4 ? 3600 : 0) << run.path;
    EXPECT_LT(run.age, 4000) << run.path;
  }
  EXPECT_EQ(ListDirectory(parent.path()).size(), 7u) << "finding removes nothing";

  const auto cleaned = RunDirectory::CleanStale(files_, clock_, parent.path());
  ASSERT_TRUE(cleaned.ok());
  EXPECT_EQ(cleaned->size(), 6u);
  EXPECT_EQ(ListDirectory(parent.path()),
            (std::vector<std::string>{"gantry-4-0123456789abcdef", "gantry-5-0123456789abcdef",
                                      "gantry-7-0123456789abcdef"}));
  for (const std::string& path : {elsewhere, unknown, held}) {
    EXPECT_EQ(ListDirectory(path), std::vector<std::string>{"lock"});
  }
}

TEST_F(RunDirectoryTest, ALockOfAnotherMachineIsNotEvenTried) {
  TemporaryDirectory parent;
  const std::string path = MakeRun(
      parent.path(), 1,
      RunOwner{.pid = 1, .host = "worker-9", .boot = "another-boot", .started = 0}.ToLine());
  const FileDescriptor holder(open((path + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(holder.get(), LOCK_EX), 0);
  const auto cleaned = RunDirectory::CleanStale(files_, clock_, parent.path());
  ASSERT_TRUE(cleaned.ok());
  ASSERT_EQ(cleaned->size(), 1u) << "a lock that was tried would be taken for a living run's";
  EXPECT_EQ((*cleaned)[0].kind, StaleRun::Kind::kElsewhere);
}

// Litter with a run's name is named and left, and stops nobody.
TEST_F(RunDirectoryTest, WhatHasNoLockOfARunIsLeftAlone) {
  TemporaryDirectory parent;
  const std::string link = parent.path() + "/gantry-1-0123456789abcdef";
  const std::string pipe = parent.path() + "/gantry-2-0123456789abcdef";
  ASSERT_EQ(mkdir(link.c_str(), 0700), 0);
  ASSERT_EQ(symlink("/etc/passwd", (link + "/lock").c_str()), 0);
  ASSERT_EQ(mkdir(pipe.c_str(), 0700), 0);
  ASSERT_EQ(mkfifo((pipe + "/lock").c_str(), 0600), 0);
  const auto cleaned = RunDirectory::CleanStale(files_, clock_, parent.path());
  ASSERT_TRUE(cleaned.ok()) << cleaned.status().ToString();
  ASSERT_EQ(cleaned->size(), 2u);
  for (const StaleRun& run : *cleaned) EXPECT_EQ(run.kind, StaleRun::Kind::kElsewhere) << run.path;
  for (const std::string& path : {link, pipe}) {
    EXPECT_EQ(unlink((path + "/lock").c_str()), 0);
    EXPECT_EQ(rmdir(path.c_str()), 0);
  }
}

// No run makes a directory in its own, so nobody can say whether it may go; links can.
TEST_F(RunDirectoryTest, ADirectoryInADeadRunIsLeftAndToldAndNoLinkFollowed) {
  TemporaryDirectory parent;
  TemporaryDirectory elsewhere;
  std::ofstream(elsewhere.path() + "/precious") << "x";
  const std::string lock = RunOwner::Current(files_).ToLine();
  const std::string holds = MakeRun(parent.path(), 1, lock);
  const std::string links = MakeRun(parent.path(), 2, lock);
  std::filesystem::create_directory(holds + "/sub");
  std::ofstream(holds + "/sub/file") << "x";
  std::filesystem::create_symlink(elsewhere.path(), links + "/directory");
  std::filesystem::create_symlink(elsewhere.path() + "/precious", links + "/file");
  std::filesystem::create_symlink("nowhere", links + "/nothing");
  const absl::Status status = RunDirectory::CleanStale(files_, clock_, parent.path()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status.ToString();
  EXPECT_TRUE(Contains(status, StrCat("'", holds, "/sub' is a directory"))) << status.ToString();
  EXPECT_TRUE(Contains(status, "remove it yourself")) << status.ToString();
  EXPECT_EQ(ListDirectory(parent.path()).size(), 1u) << "the other one is gone";
  EXPECT_EQ(ListDirectory(holds), (std::vector<std::string>{"lock", "sub"}));
  EXPECT_EQ(ListDirectory(elsewhere.path()), std::vector<std::string>{"precious"});
  std::filesystem::remove_all(holds + "/sub");  // as told
  EXPECT_TRUE(RunDirectory::CleanStale(files_, clock_, parent.path()).ok());
  EXPECT_TRUE(ListDirectory(parent.path()).empty());
}

TEST_F(RunDirectoryTest, WithoutRandomNumbersThereIsNoRunButAnError) {
  TemporaryDirectory parent;
  const int result = RunInChild([&] {
    if (!RefuseSystemCall(SYS_getrandom, ENOSYS)) return kCannot;
    const absl::Status status = RunDirectory::Create(&files_, clock_, parent.path()).status();
    EXPECT_TRUE(absl::IsInternal(status)) << status.ToString();
    EXPECT_TRUE(Contains(status, "getrandom: ENOSYS")) << status.ToString();
    EXPECT_TRUE(ListDirectory(parent.path()).empty());
    return 0;
  });
  if (result == kCannot) GTEST_SKIP() << "seccomp is not available";
  EXPECT_EQ(result, 0);
}

TEST_F(RunDirectoryTest, ParentsThatOthersMayWriteToAreUsed) {
  TemporaryDirectory parent;
  for (const mode_t mode : {mode_t{01777}, mode_t{0777}}) {
    ASSERT_EQ(chmod(parent.path().c_str(), mode), 0);
    auto run = RunDirectory::Create(&files_, clock_, parent.path());
    ASSERT_TRUE(run.ok()) << run.status().ToString();
    EXPECT_EQ(ModeOf((*run)->path()), 0700u);
  }
}

// A call that fails on the way in is an error, and what was made goes again.
TEST_F(RunDirectoryTest, WhicheverCallOfACreationFailsNothingStays) {
  TemporaryDirectory parent;
  FaultyFileCalls counting(&files_);
  ASSERT_TRUE(RunDirectory::Create(&counting, clock_, parent.path()).ok());
  int64_t failed = 0;
  for (int64_t n = 0; n < counting.calls(); ++n) {
    for (const int error : {EIO, ENOSPC}) {
      FaultyFileCalls faulty(&files_);
      faulty.Inject({.kind = {}, .first = n}, FailCall{error});
      auto run = RunDirectory::Create(&faulty, clock_, parent.path());
      if (!run.ok()) ++failed;
      run = absl::CancelledError();
      // One whose removal failed is dead, and the next clean-up takes it.
      ASSERT_TRUE(RunDirectory::CleanStale(files_, clock_, parent.path()).ok());
      EXPECT_TRUE(ListDirectory(parent.path()).empty()) << n;
    }
  }
  EXPECT_GT(failed, 10);
}

TEST_F(RunDirectoryTest, WhicheverCallOfACleaningFailsTheNextOneFinishes) {
  TemporaryDirectory parent;
  const std::string lock = RunOwner::Current(files_).ToLine();
  MakeRun(parent.path(), 1, lock);
  FaultyFileCalls counting(&files_);
  ASSERT_TRUE(RunDirectory::CleanStale(counting, clock_, parent.path()).ok());
  for (int64_t n = 0; n < counting.calls(); ++n) {
    MakeRun(parent.path(), 1, lock);
    FaultyFileCalls faulty(&files_);
    faulty.Inject({.kind = {}, .first = n}, FailCall{EIO});
    RunDirectory::CleanStale(faulty, clock_, parent.path()).IgnoreError();
    EXPECT_TRUE(RunDirectory::CleanStale(faulty, clock_, parent.path()).ok()) << n;
    EXPECT_TRUE(ListDirectory(parent.path()).empty()) << n;
  }
}

TEST_F(RunDirectoryTest, ScratchFilesComeOrAreErrors) {
  TemporaryDirectory parent;
  FaultyFileCalls faulty(&files_);
  auto run = RunDirectory::Create(&faulty, clock_, parent.path());
  ASSERT_TRUE(run.ok());
  const int64_t opened = faulty.calls(FileCallKind::kOpen);
  const int64_t unlinked = faulty.calls(FileCallKind::kUnlink);
  faulty.Inject({.kind = FileCallKind::kOpen, .first = opened}, FailCall{EINTR});
  faulty.Inject({.kind = FileCallKind::kOpen, .first = opened + 2}, FailCall{ENOSPC});
  faulty.Inject({.kind = FileCallKind::kUnlink, .first = unlinked + 1}, FailCall{EIO});
  EXPECT_TRUE((*run)->CreateFile("a", 0).ok());
  EXPECT_TRUE(absl::IsResourceExhausted((*run)->CreateFile("b", 0).status()));
  EXPECT_TRUE(absl::IsInternal((*run)->CreateFile("c", 0).status()));
  EXPECT_EQ(faulty.faults(), 3);
  run = absl::CancelledError();
  EXPECT_TRUE(ListDirectory(parent.path()).empty()) << "the file that was not unlinked goes, too";
}

TEST_F(RunDirectoryTest, NothingLeaksDescriptors) {
  TemporaryDirectory parent;
  const int64_t before = OpenDescriptors();
  for (int i = 0; i < 200; ++i) {
    auto run = RunDirectory::Create(&files_, clock_, parent.path());
    ASSERT_TRUE(run.ok());
    ASSERT_TRUE((*run)->CreateFile("blocks", 0).ok());
    ASSERT_TRUE(RunDirectory::CleanStale(files_, clock_, parent.path()).ok());
  }
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_TRUE(ListDirectory(parent.path()).empty());
}

}  // namespace
}  // namespace gantry
