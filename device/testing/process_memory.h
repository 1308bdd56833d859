// What the kernel says about this process's memory, for tests of the mapping code.
#ifndef GANTRY_DEVICE_TESTING_PROCESS_MEMORY_H_
#define GANTRY_DEVICE_TESTING_PROCESS_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace gantry {

// Reads memory through the kernel, which answers EFAULT where a plain load would be a SIGSEGV.
// One thread at a time.
class AccessProbe {
 public:
  AccessProbe();
  ~AccessProbe();
  AccessProbe(const AccessProbe&) = delete;
  AccessProbe& operator=(const AccessProbe&) = delete;

  // The byte at `address`, or -1 when touching it is a fault.
  int Read(const std::byte* address);
  bool Faults(const std::byte* address) { return Read(address) < 0; }

 private:
  int read_end_;
  int write_end_;
};

// Of the range: bytes present in memory, and mappings that overlap it.
Bytes ResidentBytes(std::span<const std::byte> range);
int64_t MappingsIn(std::span<const std::byte> range);
// Bytes in 2 MiB pages, of all mappings that overlap the range.
Bytes HugeBytes(std::span<const std::byte> range);
// Whether this machine gives 2 MiB pages for that many bytes, by trying it.
bool HugePagesAvailable(Bytes bytes);

// Resident bytes of the whole process.
Bytes ProcessResidentBytes();

// Asan and TSan keep shadow memory, so that figures of the whole process mean nothing.
#if defined(GANTRY_ASAN) || defined(GANTRY_TSAN)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace gantry

#endif  // GANTRY_DEVICE_TESTING_PROCESS_MEMORY_H_
