#include "benches/suite/machine.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/strings.h"

namespace gantry {
namespace {

// The rest of the first line that begins with `key`, blanks and a colon around it removed. An empty
// key is the first line.
std::optional<std::string> ReadLine(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(" \t:", key.size());
    if (begin == std::string::npos) return std::string();
    return line.substr(begin, line.find_last_not_of(" \t\n") + 1 - begin);
  }
  return std::nullopt;
}

// "always [madvise] never" -> "madvise".
std::string Chosen(const std::string& text) {
  const size_t open = text.find('[');
  const size_t close = text.find(']', open);
  if (open == std::string::npos || close == std::string::npos) return text;
  return text.substr(open + 1, close - open - 1);
}

std::string BuildConfiguration() {
  std::string text = "compiler ";
#if defined(__VERSION__)
  text += __VERSION__;
#endif
#if defined(NDEBUG)
  text += ", release";
#else
  text += ", with debug checks";
#endif
#if !defined(__OPTIMIZE__)
  text += ", not optimized";
#endif
#if defined(GANTRY_ASAN)
  text += ", AddressSanitizer";
#endif
#if defined(GANTRY_TSAN)
  text += ", ThreadSanitizer";
#endif
  return text;
}

// File system and source of the mount that holds device number `device`.
struct Mount {
  std::string file_system;
  std::string source;
};
std::optional<Mount> FindMount(dev_t device) {
  std::ifstream file("/proc/self/mountinfo");
  const std::string number = StrCat(major(device), ":", minor(device));
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string id;
    std::string parent;
    std::string found;
    words >> id >> parent >> found;
    const size_t dash = line.find(" - ");
    if (found != number || dash == std::string::npos) continue;
    std::istringstream rest(line.substr(dash + 3));
    Mount mount;
    rest >> mount.file_system >> mount.source;
    return mount;
  }
  return std::nullopt;
}

// A partition's queue is that of its drive.
std::string QueueFolder(dev_t device) {
  const std::string base = StrCat("/sys/dev/block/", major(device), ":", minor(device));
  const std::string partition = StrCat(base, "/../queue");
  const std::string own = StrCat(base, "/queue");
  return access(own.c_str(), R_OK) == 0 ? own : partition;
}

// Of a file made there: the alignment that direct I/O asks for.
std::optional<int64_t> DirectAlignment(const std::string& directory) {
  const int fd = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return std::nullopt;
  struct statx status{};
  const bool known = statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
                     (status.stx_mask & STATX_DIOALIGN) != 0;
  close(fd);
  if (!known) return std::nullopt;
  return static_cast<int64_t>(status.stx_dio_offset_align);
}

}  // namespace

void MachineDescription::Add(std::string_view key, Fact fact) {
  facts.emplace_back(std::string(key), std::move(fact));
}

std::string MachineDescription::Find(std::string_view key) const {
  for (const auto& [name, fact] : facts) {
    if (name == key) {
      return std::visit([](const auto& value) { return StrCat(value); }, fact);
    }
  }
  return {};
}

MachineDescription DescribeMachine() {
  MachineDescription machine;
  const auto model = ReadLine("/proc/cpuinfo", "model name");
  if (model.has_value()) machine.Add("cpu", *model);
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    machine.Add("processors", static_cast<int64_t>(CPU_COUNT(&set)));
  }
  const auto memory = ReadLine("/proc/meminfo", "MemTotal");
  if (memory.has_value()) {
    machine.Add("memory_bytes", int64_t{std::strtoll(memory->c_str(), nullptr, 10)} * 1024);
  }
  utsname name{};
  if (uname(&name) == 0) machine.Add("kernel", StrCat(name.sysname, " ", name.release));
  const auto pages = ReadLine("/sys/kernel/mm/transparent_hugepage/enabled", "");
  if (pages.has_value()) machine.Add("transparent_huge_pages", Chosen(*pages));
  double load = 0.0;
  if (getloadavg(&load, 1) == 1) machine.Add("load_average", load);
  machine.Add("build", BuildConfiguration());
  return machine;
}

void DescribeDirectory(const std::string& directory, MachineDescription& machine) {
  struct stat status{};
  if (stat(directory.c_str(), &status) != 0) return;
  const std::optional<Mount> mount = FindMount(status.st_dev);
  if (mount.has_value()) {
    machine.Add("file_system", mount->file_system);
    machine.Add("drive", mount->source);
  }
  struct statvfs space{};
  if (statvfs(directory.c_str(), &space) == 0) {
    machine.Add("free_bytes",
                static_cast<int64_t>(uint64_t{space.f_bavail} * uint64_t{space.f_frsize}));
  }
  const std::string queue = QueueFolder(status.st_dev);
  const auto rotational = ReadLine(queue + "/rotational", "");
  if (rotational.has_value()) machine.Add("rotational", *rotational == "1");
  const auto scheduler = ReadLine(queue + "/scheduler", "");
  if (scheduler.has_value()) machine.Add("scheduler", Chosen(*scheduler));
  const auto alignment = DirectAlignment(directory);
  if (alignment.has_value()) machine.Add("direct_io_alignment", *alignment);
}

}  // namespace gantry
