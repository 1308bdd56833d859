// A reserved range of GPU addresses at which the slots of one CudaSlab are mapped. A page that
// work on the device still uses when it is unmapped stays mapped until that work is done; its slot
// is free at once, for whoever comes behind that work on the device.
//
// Thread-safety and errors as AddressSpace. The slab must outlive it.
#ifndef GANTRY_DEVICE_CUDA_CUDA_ADDRESS_SPACE_H_
#define GANTRY_DEVICE_CUDA_CUDA_ADDRESS_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/cuda_queue.h"
#include "device/cuda/cuda_slab.h"
#include "device/cuda/cuda_unmapper.h"
#include "device/device.h"

namespace gantry {

class CudaAddressSpace final : public AddressSpace, private CudaAddresses {
 public:
  struct Options {
    CudaSlab* slab;
    int64_t pages;
    // Outlive the space.
    CudaContext* context;
    CudaQueue* queue;
    CudaUnmapper* unmapper;
  };
  // Errors: kInvalidArgument for negative `pages`; kResourceExhausted when there is no such range;
  // kUnimplemented on a device without virtual memory management.
  static absl::StatusOr<std::unique_ptr<CudaAddressSpace>> Create(const Options& options);
  ~CudaAddressSpace() override;  // waits for what uses its pages

  std::byte* base() const override { return base_; }
  int64_t page_count() const override { return options_.pages; }
  absl::Status Map(int64_t page, SlotId slot) override GANTRY_EXCLUDES(mutex_);
  absl::Status Unmap(int64_t page) override GANTRY_EXCLUDES(mutex_);

 private:
  struct Page {
    int64_t slot = -1;     // whose home it is; -1: nobody's
    bool mapped = false;   // still, or already
    bool leaving = false;  // the unmapper has it
    absl::Status broken;   // why it could not be unmapped
  };
  explicit CudaAddressSpace(const Options& options)
      : options_(options), context_(*options.context), pages_(static_cast<size_t>(options.pages)) {}
  Bytes size() const { return page_bytes() * options_.pages; }
  Bytes page_bytes() const { return options_.slab->slot_bytes(); }
  std::byte* Home(int64_t page) const;
  absl::Status MapAt(std::byte* home, SlotId slot);
  absl::Status UnmapAt(int64_t page);
  void FinishUnmap(int64_t page) GANTRY_EXCLUDES(mutex_);
  QueuePoint InUseUntil(int64_t offset, int64_t bytes) const override GANTRY_EXCLUDES(mutex_);

  const Options options_;
  CudaContext& context_;
  std::byte* base_ = nullptr;  // null: without pages
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Page> pages_ GANTRY_GUARDED_BY(mutex_);
  int64_t leaving_ GANTRY_GUARDED_BY(mutex_) = 0;
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_CUDA_ADDRESS_SPACE_H_
