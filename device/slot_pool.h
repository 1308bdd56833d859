// The budget of one tier as a free list over a Slab's slots: every byte of a tier is a slot, taken
// under a tag. Never hands out more than the slab has, and counts what is out, by tag and at peak.
#ifndef GANTRY_DEVICE_SLOT_POOL_H_
#define GANTRY_DEVICE_SLOT_POOL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "device/device.h"

namespace gantry {

enum class MemoryTag { kParameter, kGradient, kOptimizer, kActivation, kStaging };
inline constexpr int kMemoryTagCount = 5;
std::string_view Name(MemoryTag tag);

struct PoolUsage {
  Bytes slot_bytes = Bytes(0);
  int64_t slots_total = 0;
  int64_t slots_used = 0;
  int64_t slots_peak = 0;
  std::array<int64_t, kMemoryTagCount> used_by_tag{};
  std::array<int64_t, kMemoryTagCount> peak_by_tag{};

  // "param 12, grad 3, ... of 32 slots of 4.0 MiB", for error messages.
  std::string ToString() const;
};

// Thread-safe. Does not own the slab.
class SlotPool {
 public:
  explicit SlotPool(Slab* slab);
  ~SlotPool();  // aborts when a slot is still out (with the tags)

  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  // A free slot (lowest number first), or nothing when the tier is full.
  std::optional<SlotId> TryAcquire(MemoryTag tag);
  // Returns a slot. Aborts on a slot that is not out.
  void Release(SlotId slot);
  // Moves a slot that is out to another tag, e.g. a gradient's slot that becomes an activation's.
  void Retag(SlotId slot, MemoryTag tag);

  PoolUsage usage() const;
  int64_t free_slots() const;
  Slab* slab() const { return slab_; }

 private:
  Slab* slab_;
  mutable Mutex mutex_;
  std::vector<SlotId> free_ GANTRY_GUARDED_BY(mutex_);         // a min-heap
  std::vector<int8_t> tag_of_slot_ GANTRY_GUARDED_BY(mutex_);  // -1 when free
  PoolUsage usage_ GANTRY_GUARDED_BY(mutex_);
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_SLOT_POOL_H_
