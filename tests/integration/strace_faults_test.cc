// Faults of the real system calls under the real program: strace makes one kind of call fail or
// fall short at one point of a training run. After each the run has the right result, or ends with
// one line that says what is wrong, and the same command then resumes to the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/strings.h"
#include "trainer/cli/testing/program.h"
#include "trainer/cli/testing/program_folder.h"

namespace gantry {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

enum class Where {
  kEach,    // one call at a time: several runs, spread over all of its calls
  kAlways,  // every call from the first on
};

struct Kind {
  std::string name;  // of the test
  std::string call;
  std::string effect;  // what strace injects: "error=EIO", "retval=4096"
  Where where;
  std::string io = "auto";     // memory.io
  std::string arguments = {};  // only calls whose arguments hold this
};

std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }

constexpr int kRunsMax = 5;  // per kind

const Kind kKinds[] = {
    {"IoUringMissing", "io_uring_setup", "error=ENOSYS", Where::kAlways},
    {"IoUringForbidden", "io_uring_setup", "error=EPERM", Where::kAlways},
    {"RegistrationRefused", "io_uring_register", "error=ENOMEM", Where::kAlways},
    {"EnterAgain", "io_uring_enter", "error=EAGAIN", Where::kEach},
    {"EnterInterrupted", "io_uring_enter", "error=EINTR", Where::kEach},
    {"EnterBusy", "io_uring_enter", "error=EBUSY", Where::kEach},
    {"OpenDiskFull", "openat", "error=ENOSPC", Where::kEach, "auto", "O_CREAT"},
    {"OpenNoDescriptors", "openat", "error=EMFILE", Where::kEach, "auto", "O_CREAT"},
    {"OpenNoMemory", "openat", "error=ENOMEM", Where::kEach, "auto", "O_DIRECTORY"},
    {"PreallocationDiskFull", "fallocate", "error=ENOSPC", Where::kAlways},
    {"PreallocationUnsupported", "fallocate", "error=EOPNOTSUPP", Where::kAlways},
    {"WriteError", "pwrite64", "error=EIO", Where::kEach, "threads"},
    {"WriteDiskFull", "pwrite64", "error=ENOSPC", Where::kEach, "threads"},
    {"WriteOfNothing", "pwrite64", "retval=0", Where::kEach, "threads", ", 65536, "},
    {"ReadError", "pread64", "error=EIO", Where::kEach, "threads"},
    {"ReadOfNothing", "pread64", "retval=0", Where::kEach, "threads"},
    {"ReadInterrupted", "pread64", "error=EINTR", Where::kEach, "threads", ", 65536, "},
    {"SyncError", "fsync", "error=EIO", Where::kEach},
    {"RenameAtError", "renameat", "error=EIO", Where::kEach},
    {"DirectoryAtError", "mkdirat", "error=EIO", Where::kEach},
    {"UnlinkError", "unlinkat", "error=EIO", Where::kEach},
    {"AlignmentUnknown", "statx", "error=ENOSYS", Where::kAlways},
    {"LockError", "flock", "error=ENOLCK", Where::kEach},
    {"NoMappings", "mremap", "error=ENOMEM", Where::kEach},
    {"NoAddresses", "mmap", "error=ENOMEM", Where::kEach, "auto",
     "PROT_NONE, MAP_PRIVATE|MAP_ANONYMOUS|MAP_NORESERVE"},
    {"NoPages", "madvise", "error=ENOMEM", Where::kEach, "auto", "MADV_POPULATE_WRITE"},
};

ProgramOptions TrainIn(const ProgramFolder& folder, const Kind& kind) {
  return folder.Train({"--device=emulated", "--device_memory=3MiB", "--host_memory=1MiB",
                       "--spill_dirs=spill", StrCat("--io=", kind.io), "--checkpoint_dir=c",
                       "--steps=8", "--json"});
}

void Clean(const ProgramFolder& folder) {
  std::filesystem::remove_all(folder.path() + "/c");
  std::filesystem::remove_all(folder.path() + "/spill");
  std::filesystem::create_directory(folder.path() + "/spill");
}

std::vector<std::string> Lines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// The numbers, counted by thread as strace does, of the calls that may be struck: those of a
// healthy run. Those of the loader, before the program opens its configuration, are not ours.
std::vector<int64_t> CallsOf(const ProgramFolder& folder, const Kind& kind) {
  ProgramOptions options = TrainIn(folder, kind);
  const std::string log = folder.path() + "/calls.txt";
  options.launcher = {"strace", "-f", "-qq", "-o", log, "-e", StrCat("trace=openat,", kind.call)};
  const ProgramResult result = RunProgram(options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::map<std::string, int64_t> calls_by_thread;
  std::set<int64_t> numbers;
  int64_t before_start = 0;  // of the main thread, whose numbers up to here are the loader's
  bool started = false;
  for (const std::string& line : Lines(log)) {
    const std::string thread = line.substr(0, line.find(' '));
    if (!started && line.find("\"tiny.yaml\"") != std::string::npos) {
      started = true;
      before_start = calls_by_thread[thread];
    }
    if (line.find(StrCat(" ", kind.call, "(")) == std::string::npos) continue;
    const int64_t number = ++calls_by_thread[thread];
    // The same number of any other thread would strike the loader as well.
    const bool ours = started && number > before_start;
    if (ours && line.find(kind.arguments) != std::string::npos) numbers.insert(number);
  }
  return {numbers.begin(), numbers.end()};
}

// At most kRunsMax of them, the first and the last among them.
std::vector<int64_t> Spread(const std::vector<int64_t>& numbers) {
  const auto count = static_cast<int64_t>(numbers.size());
  const int64_t runs = std::min<int64_t>(count, kRunsMax);
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < runs; ++i) {
    const int64_t at = runs == 1 ? 0 : i * (count - 1) / (runs - 1);
    chosen.push_back(numbers[static_cast<size_t>(at)]);
  }
  return chosen;
}

class StraceFaultsTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    ProgramOptions probe{.arguments = {"help"}, .folder = folder_.path()};
    probe.launcher = {"strace", "-f", "-qq", "-o", "/dev/null"};
    const ProgramResult probed = RunProgram(probe);
    if (probed.exit_code != 0) GTEST_SKIP() << "strace cannot trace here: " << probed.err;
    Clean(folder_);
    const ProgramResult whole = RunProgram(TrainIn(folder_, GetParam()));
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    hash_ = JsonValue(whole.out, "parameter_hash");
  }

  // Runs with the fault at `when`, checks the outcome, and resumes. Returns whether any call was
  // struck.
  bool RunAndResume(const Kind& kind, const std::string& when) {
    Clean(folder_);
    const std::string log = folder_.path() + "/injected.txt";
    ProgramOptions options = TrainIn(folder_, kind);
    options.launcher = {"strace",
                        "-f",
                        "-qq",
                        "-o",
                        log,
                        "-e",
                        StrCat("trace=", kind.call),
                        "-e",
                        StrCat("inject=", kind.call, ":", kind.effect, ":when=", when)};
    const ProgramResult result = RunProgram(options);
    CheckOutcome(result);
    const ProgramResult resumed = RunProgram(TrainIn(folder_, kind));
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    if (resumed.exit_code == 0) {
      EXPECT_EQ(JsonValue(resumed.out, "parameter_hash"), hash_);
    }
    // A directory that could not be removed is removed by the next clean-up.
    if (kind.call == "unlinkat") {
      EXPECT_EQ(folder_.Run({"clean", "spill"}).exit_code, 0);
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path() + "/spill"));
    for (const std::string& line : Lines(log)) {
      if (line.find("(INJECTED)") != std::string::npos) return true;
    }
    return false;
  }

  void CheckOutcome(const ProgramResult& result) {
    EXPECT_EQ(result.signal, 0) << result.err;
    if (result.exit_code == 0) {
      EXPECT_EQ(JsonValue(result.out, "parameter_hash"), hash_);
      ++right_;
      return;
    }
    ++refused_;
    // 2: the config could not be read.
    EXPECT_THAT(result.exit_code, AnyOf(1, 2)) << result.err;
    // The last line, and the only one of its kind.
    constexpr std::string_view kError = "gantry: error: ";
    const size_t at = result.err.find(kError);
    ASSERT_NE(at, std::string::npos) << result.err;
    const std::string message = result.err.substr(at + kError.size());
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 1) << result.err;
    EXPECT_GT(message.size(), 20u) << message;
    EXPECT_THAT(result.err, Not(HasSubstr("check failed")));
    message_ = message;
  }

  ProgramFolder folder_{StrCat("strace_", GetParam().name)};
  std::string hash_;
  std::string message_;  // the last one
  int64_t right_ = 0;
  int64_t refused_ = 0;
};

TEST_P(StraceFaultsTest, EndsWellAndResumesToTheSameBits) {
  const Kind& kind = GetParam();
  Clean(folder_);
  const std::vector<int64_t> calls = CallsOf(folder_, kind);
  if (calls.empty()) {
    GTEST_SKIP() << "a run here makes no " << kind.call << " with '" << kind.arguments << "'";
  }
  int64_t struck = 0;
  if (kind.where == Where::kAlways) {
    struck += RunAndResume(kind, "1+") ? 1 : 0;
  } else {
    for (const int64_t number : Spread(calls)) {
      SCOPED_TRACE(StrCat(kind.call, " number ", number, ": ", kind.effect));
      struck += RunAndResume(kind, StrCat(number)) ? 1 : 0;
    }
  }
  EXPECT_GE(struck, 1);
  std::cout << kind.call << ", " << kind.effect << ": " << struck << " runs struck, " << right_
            << " ended right, " << refused_ << " with an error. " << message_ << "\n";
}

// What containers and sandboxes take away, for real.
TEST(Limits, LittleLockableMemoryChangesNothing) {
  const ProgramFolder folder("little_lockable_memory");
  const Kind kind{.name = "", .call = "", .effect = "", .where = Where::kAlways};
  Clean(folder);
  const ProgramResult whole = RunProgram(TrainIn(folder, kind));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  // Root is above the limit as long as it has CAP_IPC_LOCK.
  ProgramOptions options = TrainIn(folder, kind);
  options.launcher = {"prlimit", "--memlock=65536:65536", "setpriv", "--bounding-set=-ipc_lock",
                      "--inh-caps=-ipc_lock"};
  ProgramOptions probe = options;
  probe.arguments = {"help"};
  const ProgramResult probed = RunProgram(probe);
  if (probed.exit_code != 0) GTEST_SKIP() << "the limit cannot be set here: " << probed.err;
  Clean(folder);
  const ProgramResult limited = RunProgram(options);
  ASSERT_EQ(limited.exit_code, 0) << limited.err;
  EXPECT_EQ(JsonValue(limited.out, "parameter_hash"), JsonValue(whole.out, "parameter_hash"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, StraceFaultsTest, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gantry
