#include "device/host/memory_limits.h"

#include <algorithm>
#include <fstream>

#include "base/check.h"
#include "base/strings.h"

namespace gantry {
namespace {

// A slot at a home splits the reservation around it in two (2 mappings more), or, with k of n slots
// out, leaves at most 2(n-k) pieces of parking: together at most 2 per slot.
constexpr int64_t kMappingsPerSlot = 2;
// For what the rest of the process will map later: threads, heaps, libraries.
constexpr int64_t kMappingsHeadroom = 1024;

// The number after `key` at the start of a line, e.g. "MemAvailable:" or "active_file".
std::optional<int64_t> FindNumber(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    int64_t value = 0;
    if (word == key && file >> value) return value;
    file.clear();
    file.ignore(1 << 16, '\n');
  }
  return std::nullopt;
}

std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // no such file, or "max"
}

std::optional<int64_t> LeftInGroup(const std::string& folder) {
  const auto limit = ReadNumber(folder + "/memory.max");
  const auto current = ReadNumber(folder + "/memory.current");
  if (!limit.has_value() || !current.has_value()) return std::nullopt;
  const int64_t cache = FindNumber(folder + "/memory.stat", "active_file").value_or(0) +
                        FindNumber(folder + "/memory.stat", "inactive_file").value_or(0);
  return std::max<int64_t>(0, *limit - *current + std::min(cache, *current));
}

// The path in the line "0::/path", without a trailing slash; empty when there is none.
std::string GroupOfProcess(const std::string& file_name) {
  std::ifstream file(file_name);
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("0::", 0) != 0) continue;
    line.erase(0, 3);
    while (!line.empty() && line.back() == '/') line.pop_back();
    return line;
  }
  return "";
}

}  // namespace

std::optional<Bytes> AvailableMemory(const MemoryFiles& files) {
  std::optional<int64_t> least = FindNumber(files.meminfo, "MemAvailable:");
  if (least.has_value()) *least *= 1024;  // the file counts in KiB
  std::string group = GroupOfProcess(files.cgroup);
  while (true) {
    const std::optional<int64_t> left = LeftInGroup(files.cgroup_root + group);
    if (left.has_value()) least = std::min(least.value_or(*left), *left);
    if (group.empty()) break;
    group.erase(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
  if (!least.has_value()) return std::nullopt;
  return Bytes(*least);
}

std::optional<int64_t> MappingLimit() { return ReadNumber("/proc/sys/vm/max_map_count"); }

int64_t CountMappings() {
  std::ifstream file("/proc/self/maps");
  std::string line;
  int64_t count = 0;
  while (std::getline(file, line)) ++count;
  return count;
}

MappingBudget::~MappingBudget() {
  MutexLock lock(mutex_);
  GANTRY_CHECK_EQ(slots_, 0) << "a device was destroyed before its slabs";
}

absl::Status MappingBudget::Reserve(int64_t slots) {
  GANTRY_CHECK_GE(slots, 0);
  MutexLock lock(mutex_);
  if (options_.limit.has_value()) {
    const int64_t used = options_.mappings_now + kMappingsHeadroom + kMappingsPerSlot * slots_;
    const int64_t slots_left = std::max<int64_t>(0, (*options_.limit - used) / kMappingsPerSlot);
    if (slots > slots_left) {
      return ResourceExhausted(
          slots, " slots need ", kMappingsPerSlot,
          " memory mappings each, and this process may have ", *options_.limit, " (", used,
          " spoken for, room for ", slots_left,
          " slots): use larger slots, or raise the limit: sysctl -w vm.max_map_count=",
          used / kMappingsPerSlot > INT64_MAX / kMappingsPerSlot - slots
              ? INT64_MAX
              : used + kMappingsPerSlot * slots);
    }
  }
  slots_ += slots;
  return absl::OkStatus();
}

void MappingBudget::Release(int64_t slots) {
  MutexLock lock(mutex_);
  GANTRY_CHECK_GE(slots_, slots);
  slots_ -= slots;
}

}  // namespace gantry
