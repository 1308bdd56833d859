#include "benches/suite/fio.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

using Json = nlohmann::json;

constexpr int64_t kNanosecondsPerMillisecond = 1'000'000;

// fio takes ':' in a name as the border between names.
std::string EscapedName(const std::string& path) {
  std::string escaped;
  for (const char c : path) {
    if (c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string_view Pattern(LoadMix mix) {
  switch (mix) {
    case LoadMix::kRead:
      return "read";
    case LoadMix::kWrite:
      return "write";
    case LoadMix::kMixed:
      return "rw";
  }
  return "?";
}

std::vector<std::string> CommandLine(const FioJob& job) {
  std::vector<std::string> words = {job.program,
                                    "--name=gantry",
                                    "--thread",
                                    "--ioengine=io_uring",
                                    "--invalidate=0",
                                    "--output-format=json",
                                    "--scramble_buffers=0",
                                    StrCat("--filename=", EscapedName(job.file)),
                                    StrCat("--size=", job.file_bytes.count()),
                                    StrCat("--bs=", job.block_bytes.count()),
                                    StrCat("--iodepth=", job.queue_depth),
                                    StrCat("--rw=", Pattern(job.mix)),
                                    StrCat("--direct=", job.access == FileAccess::kDirect ? 1 : 0)};
  if (job.buffers == FioBuffers::kRegistered) {
    words.emplace_back("--fixedbufs");
    words.emplace_back("--registerfiles");
  }
  if (job.duration > 0) {
    const int64_t milliseconds = std::max<int64_t>(job.duration / kNanosecondsPerMillisecond, 1);
    words.emplace_back("--time_based");
    words.push_back(StrCat("--runtime=", milliseconds, "ms"));
  }
  return words;
}

// This process's environment, in which glibc's malloc asks for 2 MiB pages.
std::vector<std::string> HugePageEnvironment() {
  constexpr std::string_view kName = "GLIBC_TUNABLES=";
  std::vector<std::string> variables = {StrCat(kName, "glibc.malloc.hugetlb=1")};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.starts_with(kName)) {
      variables[0] += StrCat(":", text.substr(kName.size()));
    } else {
      variables.emplace_back(text);
    }
  }
  return variables;
}

std::vector<char*> Pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Both outputs of the child, to its end.
std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 65536> buffer{};
  while (true) {
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
}

struct ChildResult {
  int wait_status;
  std::string output;
};

absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& words) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe to fio");
  const FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDERR_FILENO);
  const std::vector<std::string> environment = HugePageEnvironment();
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, words[0].c_str(), &actions, nullptr, Pointers(words).data(),
                                 Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT || error == EACCES) {
    return NotFound("no program '", words[0], "': install fio or name it with --fio=PATH");
  }
  if (error != 0) return ErrnoStatus(error, StrCat("start of '", words[0], "'"));
  GANTRY_RETURN_IF_ERROR(write_end.Close());
  ChildResult result{.wait_status = 0, .output = ReadAll(read_end.get())};
  while (waitpid(pid, &result.wait_status, 0) < 0) {
    if (errno != EINTR) return ErrnoStatus(errno, "wait for fio");
  }
  return result;
}

// The first line that is not JSON, for messages.
std::string FirstLine(const std::string& output) {
  const std::string line = output.substr(0, output.find('\n'));
  return line.empty() ? "nothing" : StrCat("'", line, "'");
}

double PercentileOf(const Json& direction, const char* key) {
  const Json& latencies = direction.at("clat_ns");
  if (!latencies.contains("percentile")) return 0.0;
  return latencies.at("percentile").value(key, 0.0);
}

}  // namespace

std::string_view Name(LoadMix mix) {
  switch (mix) {
    case LoadMix::kRead:
      return "read";
    case LoadMix::kWrite:
      return "write";
    case LoadMix::kMixed:
      return "mixed";
  }
  return "?";
}

absl::StatusOr<FioResult> ParseFioReport(std::string_view text) {
  const size_t begin = text.find('{');
  const size_t end = text.rfind('}');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) {
    return Internal("fio printed no report");
  }
  const Json report = Json::parse(text.substr(begin, end + 1 - begin), nullptr, false);
  FioResult result;
  try {
    const Json& job = report.at("jobs").at(0);
    if (const int error = job.at("error").get<int>(); error != 0) {
      return Internal("fio reports error ", error, " of its job");
    }
    double milliseconds = 0.0;
    for (const char* direction : {"read", "write"}) {
      result.bytes += job.at(direction).at("io_bytes").get<int64_t>();
      milliseconds = std::max(milliseconds, job.at(direction).at("runtime").get<double>());
    }
    result.seconds = milliseconds * 1e-3;
    const double percent = job.at("usr_cpu").get<double>() + job.at("sys_cpu").get<double>();
    result.cpu_seconds = percent * 1e-2 * job.at("job_runtime").get<double>() * 1e-3;
    result.latency_median = PercentileOf(job.at("read"), "50.000000");
    result.latency_99 = PercentileOf(job.at("read"), "99.000000");
    result.latency_99_9 = PercentileOf(job.at("read"), "99.900000");
  } catch (const Json::exception& error) {
    return Internal("fio's report can't be read: ", error.what());
  }
  if (result.bytes <= 0 || result.seconds <= 0.0) return Internal("fio's job moved nothing");
  return result;
}

absl::StatusOr<FioResult> RunFio(const FioJob& job) {
  GANTRY_ASSIGN_OR_RETURN(const ChildResult child, RunChild(CommandLine(job)));
  if (!WIFEXITED(child.wait_status) || WEXITSTATUS(child.wait_status) != 0) {
    return Internal("fio failed, it says ", FirstLine(child.output));
  }
  return ParseFioReport(child.output);
}

}  // namespace gantry
