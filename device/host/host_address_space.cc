#include "device/host/host_address_space.h"

#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr int64_t kEmpty = -1;

}  // namespace

absl::StatusOr<std::unique_ptr<HostAddressSpace>> HostAddressSpace::Create(HostSlab* slab,
                                                                           int64_t pages) {
  if (pages < 0) return InvalidArgument("an address space of ", pages, " pages");
  int64_t bytes = 0;
  if (__builtin_mul_overflow(pages, slab->slot_bytes().count(), &bytes)) {
    return ResourceExhausted("no address range of ", pages, " pages of ", slab->slot_bytes());
  }
  GANTRY_ASSIGN_OR_RETURN(AddressRange range,
                          AddressRange::Reserve(Bytes(bytes), AddressRange::Access::kNone));
  return std::unique_ptr<HostAddressSpace>(new HostAddressSpace(slab, std::move(range), pages));
}

HostAddressSpace::HostAddressSpace(HostSlab* slab, AddressRange range, int64_t pages)
    : slab_(slab), range_(std::move(range)), slot_of_page_(static_cast<size_t>(pages)) {
  for (std::atomic<int64_t>& slot : slot_of_page_) slot.store(kEmpty);
  slab_->AttachSpace();
}

HostAddressSpace::~HostAddressSpace() {
  for (int64_t page = 0; page < page_count(); ++page) {
    if (slot_of_page_[static_cast<size_t>(page)].load() == kEmpty) continue;
    // A slot that cannot be moved back goes with these addresses: its slab aborts when it is used.
    static_cast<void>(Unmap(page));
  }
  slab_->DetachSpace();
}

std::byte* HostAddressSpace::Home(int64_t page) const {
  GANTRY_CHECK(page >= 0 && page < page_count()) << "page " << page << " of " << page_count();
  return range_.base() + page * slab_->slot_bytes().count();
}

absl::Status HostAddressSpace::Map(int64_t page, SlotId slot) {
  std::byte* home = Home(page);
  std::atomic<int64_t>& entry = slot_of_page_[static_cast<size_t>(page)];
  GANTRY_CHECK_EQ(entry.load(), kEmpty) << "page " << page << " has a slot, cannot map " << slot;
  GANTRY_RETURN_IF_ERROR(slab_->MoveHome(slot, home));
  entry.store(slot.value());
  return absl::OkStatus();
}

absl::Status HostAddressSpace::Unmap(int64_t page) {
  std::byte* home = Home(page);
  std::atomic<int64_t>& entry = slot_of_page_[static_cast<size_t>(page)];
  GANTRY_CHECK_NE(entry.load(), kEmpty) << "page " << page << " has no slot";
  GANTRY_RETURN_IF_ERROR(slab_->MoveToParking(SlotId(entry.load()), home));
  entry.store(kEmpty);
  return absl::OkStatus();
}

}  // namespace gantry
