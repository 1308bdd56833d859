// A reserved range of host addresses into which the slots of one HostSlab are moved.
// Thread-safety and errors as AddressSpace. The slab must outlive it; pages that are still mapped
// when it is destroyed go back to parking with their content.
#ifndef GANTRY_DEVICE_HOST_HOST_ADDRESS_SPACE_H_
#define GANTRY_DEVICE_HOST_HOST_ADDRESS_SPACE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "device/device.h"
#include "device/host/host_slab.h"
#include "device/host/virtual_memory.h"

namespace gantry {

class HostAddressSpace final : public AddressSpace {
 public:
  // Errors: kInvalidArgument for negative `pages`; kResourceExhausted when there is no such range.
  static absl::StatusOr<std::unique_ptr<HostAddressSpace>> Create(HostSlab* slab, int64_t pages);
  ~HostAddressSpace() override;

  std::byte* base() const override { return range_.base(); }
  int64_t page_count() const override { return static_cast<int64_t>(slot_of_page_.size()); }
  absl::Status Map(int64_t page, SlotId slot) override;
  absl::Status Unmap(int64_t page) override;

 private:
  HostAddressSpace(HostSlab* slab, AddressRange range, int64_t pages);
  std::byte* Home(int64_t page) const;

  HostSlab* slab_;
  AddressRange range_;
  std::vector<std::atomic<int64_t>> slot_of_page_;  // kEmpty when there is none
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_HOST_HOST_ADDRESS_SPACE_H_
