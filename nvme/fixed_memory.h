// Memory that is registered with a ring: regions cut into slices that the kernel accepts, and the
// slice that holds a buffer.
//
// Pure; immutable, so thread-safe. Views the regions, and never touches their bytes.
#ifndef GANTRY_NVME_FIXED_MEMORY_H_
#define GANTRY_NVME_FIXED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gantry {

class FixedMemory {
 public:
  static constexpr int64_t kSliceBytesMax = int64_t{1} << 30;  // the kernel's limit

  // REQUIRES: the regions do not overlap.
  explicit FixedMemory(std::span<const std::span<std::byte>> regions);

  const std::vector<std::span<std::byte>>& slices() const { return slices_; }
  // The index of the slice in which all of `buffer` lies; none where there is no such slice, or
  // `buffer` is empty.
  std::optional<int> Find(std::span<const std::byte> buffer) const;

 private:
  std::vector<std::span<std::byte>> slices_;  // by address
};

}  // namespace gantry

#endif  // GANTRY_NVME_FIXED_MEMORY_H_
