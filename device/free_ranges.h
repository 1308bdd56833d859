// Which byte ranges of a reserved range of addresses are free: first fit (the free range of lowest
// address that fits), 256-byte alignment, neighbours joined. A function of the calls alone, so that
// a sequence of them can be played through without memory.
//
// Thread-compatible.
#ifndef GANTRY_DEVICE_FREE_RANGES_H_
#define GANTRY_DEVICE_FREE_RANGES_H_

#include <cstdint>
#include <map>
#include <optional>

namespace gantry {

class FreeRanges {
 public:
  static constexpr int64_t kAlignment = 256;  // what vector units and device kernels want

  explicit FreeRanges(int64_t bytes);

  // The offset of `bytes` now taken; nothing when no free range is so large. REQUIRES: bytes > 0.
  std::optional<int64_t> Take(int64_t bytes);
  // Returns what was taken with the same size.
  void Return(int64_t offset, int64_t bytes);
  int64_t largest() const;

 private:
  std::map<int64_t, int64_t> ranges_;  // offset -> bytes
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_FREE_RANGES_H_
