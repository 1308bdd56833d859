#include "trainer/cli/testing/program.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "base/strings.h"

namespace gantry {
namespace {

std::string ProgramPath() {
  const char* const runfiles = std::getenv("TEST_SRCDIR");
  const char* const workspace = std::getenv("TEST_WORKSPACE");
  GANTRY_CHECK(runfiles != nullptr && workspace != nullptr) << "run this through bazel";
  return std::filesystem::absolute(StrCat(runfiles, "/", workspace, "/trainer/cli/gantry"));
}

struct Channel {
  FileDescriptor parent;
  FileDescriptor child;
};

Channel MakePipe() {
  std::array<int, 2> ends{};
  GANTRY_CHECK_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

Channel MakeTerminal() {
  FileDescriptor parent(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  GANTRY_CHECK(parent.valid());
  GANTRY_CHECK_EQ(grantpt(parent.get()), 0);
  GANTRY_CHECK_EQ(unlockpt(parent.get()), 0);
  std::array<char, 64> name{};
  GANTRY_CHECK_EQ(ptsname_r(parent.get(), name.data(), name.size()), 0);
  FileDescriptor child(open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  GANTRY_CHECK(child.valid());
  return {std::move(parent), std::move(child)};
}

// From the next exec on. True for users who never had any.
bool DropFilePrivileges() {
  return geteuid() != 0 || (prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE) == 0 &&
                            prctl(PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH) == 0);
}

// Bazel's ThreadSanitizer options name a file relative to where this test runs, not the program.
void MakeSanitizerPathsAbsolute() {
  const char* const options = std::getenv("TSAN_OPTIONS");
  if (options == nullptr) return;
  constexpr std::string_view kKey = "suppressions=";
  std::string text = options;
  const size_t at = text.find(kKey);
  if (at == std::string::npos || text[at + kKey.size()] == '/') return;
  text.insert(at + kKey.size(), std::filesystem::current_path().string() + "/");
  GANTRY_CHECK_EQ(setenv("TSAN_OPTIONS", text.c_str(), 1), 0);
}

[[noreturn]] void ExecChild(const ProgramOptions& options, const std::string& path, int out,
                            int err) {
  if (options.file_bytes_max > 0) {
    const auto limit = static_cast<rlim_t>(options.file_bytes_max);
    const rlimit both = {.rlim_cur = limit, .rlim_max = limit};
    if (setrlimit(RLIMIT_FSIZE, &both) != 0) _exit(126);
  }
  if (options.privileges == FilePrivileges::kDropped && !DropFilePrivileges()) _exit(126);
  if (chdir(options.folder.c_str()) != 0) _exit(126);
  if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0) _exit(126);
  std::vector<char*> words;
  for (const std::string& word : options.launcher) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(const_cast<char*>(path.c_str()));
  for (const std::string& word : options.arguments) {
    words.push_back(const_cast<char*>(word.c_str()));
  }
  words.push_back(nullptr);
  execvp(words.front(), words.data());
  _exit(127);
}

}  // namespace

bool CanDropFilePrivileges() {
  const pid_t child = fork();
  GANTRY_CHECK_GE(child, 0);
  if (child == 0) _exit(DropFilePrivileges() ? 0 : 1);
  int state = 0;
  GANTRY_CHECK_EQ(waitpid(child, &state, 0), child);
  return WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

Program::Program(const ProgramOptions& options) {
  const std::string path = ProgramPath();
  MakeSanitizerPathsAbsolute();
  Channel out = MakePipe();
  Channel err = options.error_output == ErrorOutput::kTerminal ? MakeTerminal() : MakePipe();
  pid_ = fork();
  GANTRY_CHECK_GE(pid_, 0);
  if (pid_ == 0) ExecChild(options, path, out.child.get(), err.child.get());
  out_ = std::move(out.parent);
  err_ = std::move(err.parent);
}

Program::~Program() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool Program::ReadMore() {
  std::array<char, 4096> buffer{};
  ssize_t got = 0;
  do {
    got = read(err_.get(), buffer.data(), buffer.size());
  } while (got < 0 && errno == EINTR);
  // A terminal whose other side is gone gives EIO.
  if (got <= 0) return false;
  err_text_.append(buffer.data(), static_cast<size_t>(got));
  return true;
}

std::optional<std::string> Program::WaitForLine(const std::string& text) {
  while (true) {
    for (size_t end = err_text_.find('\n', seen_); end != std::string::npos;
         end = err_text_.find('\n', seen_)) {
      std::string line = err_text_.substr(seen_, end - seen_);
      seen_ = end + 1;
      if (line.find(text) != std::string::npos) return line;
    }
    if (!ReadMore()) return std::nullopt;
  }
}

void Program::Signal(int number) const { GANTRY_CHECK_EQ(kill(pid_, number), 0); }

ProgramResult Program::Finish() {
  while (ReadMore()) {
  }
  ProgramResult result;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = read(out_.get(), buffer.data(), buffer.size())) > 0;) {
    result.out.append(buffer.data(), static_cast<size_t>(got));
  }
  int state = 0;
  GANTRY_CHECK_EQ(waitpid(pid_, &state, 0), pid_);
  pid_ = -1;
  if (WIFEXITED(state)) result.exit_code = WEXITSTATUS(state);
  if (WIFSIGNALED(state)) result.signal = WTERMSIG(state);
  result.err = err_text_;
  return result;
}

ProgramResult RunProgram(const ProgramOptions& options) { return Program(options).Finish(); }

}  // namespace gantry
