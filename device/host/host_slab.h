// Slots of host memory: one 2 MiB-aligned anonymous mapping, huge pages where slot_bytes is a
// multiple of 2 MiB, every page present before Create returns. "Pinned" means resident by being
// touched: the memory is not mlocked (RLIMIT_MEMLOCK is small by default; without swap nothing
// moves it, with swap it can be paged out).
//
// A fork shares the pages; writes while the child lives split huge pages in this process.
#ifndef GANTRY_DEVICE_HOST_HOST_SLAB_H_
#define GANTRY_DEVICE_HOST_HOST_SLAB_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/ids.h"
#include "device/device.h"
#include "device/host/memory_limits.h"
#include "device/host/virtual_memory.h"

namespace gantry {

// Thread-safe for different slots.
class HostSlab final : public Slab {
 public:
  struct Options {
    Device::SlabOptions slab;
    MoveMethod move_method;
    MappingBudget* mapping_budget;  // outlives the slab
  };
  // Errors: kInvalidArgument for slot_bytes that is no positive multiple of the page size or a
  // negative slot_count; kResourceExhausted when memory, addresses or mappings do not suffice.
  static absl::StatusOr<std::unique_ptr<HostSlab>> Create(const Options& options);
  ~HostSlab() override;  // aborts when an address space over it is alive

  Bytes slot_bytes() const override { return options_.slab.slot_bytes; }
  int64_t slot_count() const override { return options_.slab.slot_count; }
  std::byte* parking(SlotId slot) const override;  // aborts when the slot is mapped at a home

  MemoryKind kind() const { return options_.slab.kind; }

  // For HostAddressSpace. `home` is a reserved, inaccessible range of slot_bytes.
  absl::Status MoveHome(SlotId slot, std::byte* home);
  absl::Status MoveToParking(SlotId slot, std::byte* home);
  void AttachSpace() { spaces_.fetch_add(1); }
  void DetachSpace() { spaces_.fetch_sub(1); }

 private:
  HostSlab(const Options& options, AddressRange range);
  std::byte* Address(SlotId slot) const;

  Options options_;
  AddressRange range_;
  std::vector<std::atomic<bool>> at_home_;
  std::atomic<int64_t> spaces_ = 0;
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_HOST_HOST_SLAB_H_
