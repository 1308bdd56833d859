// What the operating system lets this process have: memory, and mappings (vm.max_map_count). Asked
// before a slab is made, because the answer to asking too much later is the out-of-memory killer.
#ifndef GANTRY_DEVICE_HOST_MEMORY_LIMITS_H_
#define GANTRY_DEVICE_HOST_MEMORY_LIMITS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/mutex.h"

namespace gantry {

// Where the kernel's answers lie.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  std::string cgroup = "/proc/self/cgroup";    // names this process's group
  std::string cgroup_root = "/sys/fs/cgroup";  // version 2
};

// The least of MemAvailable and what each control group above this process leaves (page cache
// counts as free, as it does in MemAvailable). Nothing when no file can be read.
std::optional<Bytes> AvailableMemory(const MemoryFiles& files);

// vm.max_map_count; nothing when it cannot be read.
std::optional<int64_t> MappingLimit();
// The mappings of this process now (lines of /proc/self/maps).
int64_t CountMappings();

// Keeps the mappings that the slots of a device can come to need below the limit of the process.
// Thread-safe.
class MappingBudget {
 public:
  struct Options {
    int64_t mappings_now;
    std::optional<int64_t> limit;  // nothing: unlimited
  };
  explicit MappingBudget(Options options) : options_(options) {}
  ~MappingBudget();  // aborts when slots are still reserved

  MappingBudget(const MappingBudget&) = delete;
  MappingBudget& operator=(const MappingBudget&) = delete;

  // Errors: kResourceExhausted, which says what to raise.
  absl::Status Reserve(int64_t slots);
  void Release(int64_t slots);

 private:
  Options options_;
  Mutex mutex_;
  int64_t slots_ GANTRY_GUARDED_BY(mutex_) = 0;
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_HOST_MEMORY_LIMITS_H_
