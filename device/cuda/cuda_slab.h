// Slots of GPU memory. With virtual memory management each slot is physical memory of its own,
// mapped for life at its parking address and beside that at the home it is given (aliases, which
// CUDA allows). Without it the slab is one allocation and its slots have no homes.
//
// Thread-safe for different slots.
#ifndef GANTRY_DEVICE_CUDA_CUDA_SLAB_H_
#define GANTRY_DEVICE_CUDA_CUDA_SLAB_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/ids.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/cuda_queue.h"
#include "device/device.h"

namespace gantry {

class CudaSlab final : public Slab, private CudaAddresses {
 public:
  struct Options {
    Device::SlabOptions slab;  // kDevice
    CudaContext* context;      // outlives the slab
    CudaQueue* queue;          // outlives the slab
  };
  // Errors: kInvalidArgument for slot_bytes that is no positive multiple of the granularity or a
  // negative slot_count; kResourceExhausted naming what is free.
  static absl::StatusOr<std::unique_ptr<CudaSlab>> Create(const Options& options);
  // Waits for the queue. Aborts when an address space over it is alive.
  ~CudaSlab() override;

  Bytes slot_bytes() const override { return options_.slab.slot_bytes; }
  int64_t slot_count() const override { return options_.slab.slot_count; }
  std::byte* parking(SlotId slot) const override;  // aborts when the slot is mapped at a home

  // For CudaAddressSpace.
  CudaPhysicalMemory physical(SlotId slot) const { return physical_[Index(slot)]; }
  void SetAtHome(SlotId slot, bool at_home);  // aborts when it is so already
  // Work up to the point uses the slot, which is at no home any more.
  void SetInUseUntil(SlotId slot, QueuePoint point);
  QueuePoint in_use_until(SlotId slot) const { return {in_use_until_[Index(slot)].load()}; }
  void AttachSpace() { spaces_.fetch_add(1); }
  void DetachSpace() { spaces_.fetch_sub(1); }

 private:
  explicit CudaSlab(const Options& options);
  absl::Status Allocate(Bytes bytes);
  absl::Status AddSlot(int64_t slot);
  Bytes size() const { return slot_bytes() * slot_count(); }
  size_t Index(SlotId slot) const;
  QueuePoint InUseUntil(int64_t offset, int64_t bytes) const override;

  const Options options_;
  CudaContext& context_;
  std::byte* base_ = nullptr;                 // null: without slots
  std::vector<CudaPhysicalMemory> physical_;  // by slot; empty without virtual memory
  std::vector<bool> mapped_;                  // by slot: at its parking address
  std::vector<std::atomic<bool>> at_home_;
  std::vector<std::atomic<int64_t>> in_use_until_;
  std::atomic<int64_t> spaces_ = 0;
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_CUDA_SLAB_H_
