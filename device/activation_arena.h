// Memory for activations and temporaries, drawn slot by slot from the same pool as the chunks, so
// that model and non-model memory share one budget without fragmentation between them.
//
// Allocations live at addresses of one reserved range: the free range of lowest address that fits
// (first fit, 256-byte alignment). The slots under a live allocation are mapped; slots under free
// ranges stay mapped for reuse until Trim gives them back, or until the source has no slot for a
// page elsewhere: then the highest of them moves there, so that an arena never fails while it holds
// a slot that it does not need. The sequence of addresses depends only on the sequence of calls,
// never on slot size or pool pressure, which is what lets a dry run (accounting without memory)
// predict exactly how many slots every later moment needs.
#ifndef GANTRY_DEVICE_ACTIVATION_ARENA_H_
#define GANTRY_DEVICE_ACTIVATION_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "device/device.h"
#include "device/free_ranges.h"
#include "device/slot_pool.h"

namespace gantry {

// Where the arena gets slots when it must grow. May block until a block was evicted.
class SlotSource {
 public:
  virtual ~SlotSource() = default;
  // Errors: kResourceExhausted when nothing can be evicted, with who holds what.
  virtual absl::StatusOr<SlotId> AcquireActivationSlot() = 0;
  virtual void ReleaseActivationSlot(SlotId slot) = 0;
};

// Observes allocations (offsets in bytes from the arena's base), for the memory tracer.
class ArenaObserver {
 public:
  virtual ~ArenaObserver() = default;
  virtual void OnAllocate(int64_t offset, int64_t bytes) = 0;
  virtual void OnFree(int64_t offset, int64_t bytes) = 0;
};

// Memory beside the arena, for some of its allocations.
class ArenaDetour {
 public:
  virtual ~ArenaDetour() = default;
  // Where an allocation of more than 0 bytes goes instead; null: into the arena.
  virtual std::byte* OnAllocate(int64_t bytes) = 0;
  virtual void OnFree(const std::byte* data, int64_t bytes) = 0;
};

class ActivationArena;

// An allocation; frees itself. Move-only; a moved-from buffer is empty.
class ArenaBuffer {
 public:
  ArenaBuffer() = default;
  ArenaBuffer(ArenaBuffer&& other) noexcept;
  ArenaBuffer& operator=(ArenaBuffer&& other) noexcept;
  ~ArenaBuffer();

  bool empty() const { return arena_ == nullptr; }
  // In a dry run the address is not backed by memory: never dereference it there.
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  friend class ActivationArena;
  ArenaBuffer(ActivationArena* arena, std::byte* data, int64_t bytes)
      : arena_(arena), data_(data), bytes_(bytes) {}
  ActivationArena* arena_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Allocate and frees come from one thread (the compute thread); Trim and the getters from any. No
// lock is held while the source, the observer or the detour runs: they may call Trim and the
// getters.
class ActivationArena {
 public:
  enum class Mode { kBacked, kDryRun };

  // Owns `space`; `source` and `slab` must outlive the arena.
  ActivationArena(std::unique_ptr<AddressSpace> space, Bytes slot_bytes, SlotSource* source);
  ~ActivationArena();  // aborts when an allocation is alive

  // Errors: kResourceExhausted from the source, or when the address range is used up.
  // bytes >= 0; 0 gives a buffer with an address that must not be touched.
  absl::StatusOr<ArenaBuffer> Allocate(int64_t bytes);

  // REQUIRES: nothing allocated.
  void SetMode(Mode mode);
  void SetObserver(ArenaObserver* observer);  // null for none
  void SetDetour(ArenaDetour* detour);        // null for none; not in a dry run

  // Where an allocation lies, in bytes from the arena's base: what observers hear.
  int64_t OffsetOf(const std::byte* data) const;

  // Gives back mapped slots that carry no live allocation, highest address first, until at most
  // `keep` mapped slots remain (live ones always stay). Returns how many were given back.
  int64_t Trim(int64_t keep);
  int64_t mapped_slots() const;
  int64_t live_slots() const;  // slots under live allocations

 private:
  friend class ArenaBuffer;
  struct PageRange {
    int64_t first;
    int64_t last;
  };

  void Free(const std::byte* data, int64_t bytes);
  std::byte* Detour(int64_t bytes) GANTRY_EXCLUDES(mutex_);
  PageRange PagesOf(int64_t offset, int64_t bytes) const;
  absl::StatusOr<int64_t> TakeFreeRange(int64_t bytes) GANTRY_REQUIRES(mutex_);
  void CountIn(int64_t offset, int64_t bytes) GANTRY_REQUIRES(mutex_);
  void CountOut(int64_t offset, int64_t bytes) GANTRY_REQUIRES(mutex_);

  // Maps what is not mapped of the pages of a live allocation, all or nothing.
  absl::Status MapPages(PageRange pages) GANTRY_EXCLUDES(mutex_);
  absl::Status MapPage(int64_t page) GANTRY_EXCLUDES(mutex_);
  absl::StatusOr<SlotId> AcquireSlot() GANTRY_EXCLUDES(mutex_);
  // Unmaps the highest page that is mapped under no live allocation; nothing when there is none.
  std::optional<SlotId> UnmapIdlePage() GANTRY_REQUIRES(mutex_);
  // Nothing when the address space refuses: the page stays mapped.
  std::optional<SlotId> UnmapPage(int64_t page) GANTRY_REQUIRES(mutex_);

  std::unique_ptr<AddressSpace> space_;  // set for life
  const int64_t slot_bytes_;
  SlotSource* const source_;
  mutable Mutex mutex_;
  Mode mode_ GANTRY_GUARDED_BY(mutex_) = Mode::kBacked;
  ArenaObserver* observer_ GANTRY_GUARDED_BY(mutex_) = nullptr;
  ArenaDetour* detour_ GANTRY_GUARDED_BY(mutex_) = nullptr;
  FreeRanges free_ranges_ GANTRY_GUARDED_BY(mutex_);
  std::vector<int64_t> live_on_page_ GANTRY_GUARDED_BY(mutex_);  // allocations touching it
  std::vector<int64_t> slot_of_page_ GANTRY_GUARDED_BY(mutex_);  // -1 when unmapped
  int64_t mapped_ GANTRY_GUARDED_BY(mutex_) = 0;
  int64_t live_pages_ GANTRY_GUARDED_BY(mutex_) = 0;
  int64_t allocations_ GANTRY_GUARDED_BY(mutex_) = 0;
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_ACTIVATION_ARENA_H_
