#include "device/host/host_slab.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

absl::Status Validate(const Device::SlabOptions& options) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  if (options.slot_bytes.count() <= 0 || options.slot_bytes.count() % page != 0) {
    return InvalidArgument("slots of ", options.slot_bytes.count(),
                           " bytes: not a positive multiple of the page size, ", page);
  }
  if (options.slot_count < 0) return InvalidArgument("a slab of ", options.slot_count, " slots");
  return absl::OkStatus();
}

// Makes every page present. Populating reports a lack of memory, where touching would be killed.
absl::Status Populate(const AddressRange& range) {
  if (range.bytes() == 0) return absl::OkStatus();
  if (madvise(range.base(), static_cast<size_t>(range.bytes()), MADV_POPULATE_WRITE) == 0) {
    return absl::OkStatus();
  }
  if (errno != EINVAL) {
    return ResourceExhausted("cannot touch ", Bytes(range.bytes()),
                             " of memory: ", std::strerror(errno));
  }
  // Before Linux 5.14.
  const int64_t page = sysconf(_SC_PAGESIZE);
  for (int64_t offset = 0; offset < range.bytes(); offset += page) {
    *static_cast<volatile std::byte*>(range.base() + offset) = std::byte{0};
  }
  return absl::OkStatus();
}

absl::StatusOr<AddressRange> AllocateSlots(const Device::SlabOptions& options) {
  int64_t bytes = 0;
  const bool overflow =
      __builtin_mul_overflow(options.slot_bytes.count(), options.slot_count, &bytes);
  const std::optional<Bytes> available = AvailableMemory(MemoryFiles());
  if (overflow || (available.has_value() && Bytes(bytes) > *available)) {
    return ResourceExhausted(
        options.slot_count, " slots of ", options.slot_bytes, " need ",
        overflow ? "more than 8 EiB" : Bytes(bytes).ToString(),
        " of memory; available: ", available.has_value() ? available->ToString() : "unknown");
  }
  GANTRY_ASSIGN_OR_RETURN(AddressRange range,
                          AddressRange::Reserve(Bytes(bytes), AddressRange::Access::kReadWrite));
  if (bytes > 0 && options.slot_bytes.count() % kHugePageBytes == 0) {
    // A kernel without huge pages refuses; slots then work with small ones.
    static_cast<void>(madvise(range.base(), static_cast<size_t>(bytes), MADV_HUGEPAGE));
  }
  GANTRY_RETURN_IF_ERROR(Populate(range));
  return range;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostSlab>> HostSlab::Create(const Options& options) {
  GANTRY_RETURN_IF_ERROR(Validate(options.slab));
  // Slots of host kind never move, so their slab is one mapping.
  const int64_t mappable =
      options.slab.kind == MemoryKind::kDevice ? options.slab.slot_count : int64_t{0};
  GANTRY_RETURN_IF_ERROR(options.mapping_budget->Reserve(mappable));
  absl::StatusOr<AddressRange> range = AllocateSlots(options.slab);
  if (!range.ok()) {
    options.mapping_budget->Release(mappable);
    return range.status();
  }
  return std::unique_ptr<HostSlab>(new HostSlab(options, *std::move(range)));
}

HostSlab::HostSlab(const Options& options, AddressRange range)
    : options_(options),
      range_(std::move(range)),
      at_home_(static_cast<size_t>(options.slab.slot_count)) {}

HostSlab::~HostSlab() {
  GANTRY_CHECK_EQ(spaces_.load(), 0) << "a slab was destroyed before its address spaces";
  if (kind() == MemoryKind::kDevice) options_.mapping_budget->Release(slot_count());
}

std::byte* HostSlab::Address(SlotId slot) const {
  GANTRY_CHECK(slot.value() >= 0 && slot.value() < slot_count())
      << slot << " of " << slot_count() << " slots";
  return range_.base() + slot.value() * slot_bytes().count();
}

std::byte* HostSlab::parking(SlotId slot) const {
  std::byte* address = Address(slot);
  GANTRY_CHECK(!at_home_[static_cast<size_t>(slot.value())].load())
      << slot << " is mapped at a home address";
  return address;
}

absl::Status HostSlab::MoveHome(SlotId slot, std::byte* home) {
  std::byte* address = Address(slot);
  std::atomic<bool>& at_home = at_home_[static_cast<size_t>(slot.value())];
  GANTRY_CHECK(!at_home.exchange(true)) << slot << " is already mapped at a home address";
  absl::Status status =
      MovePages(options_.move_method, {.from = address, .to = home, .bytes = slot_bytes().count()});
  if (!status.ok()) at_home.store(false);
  return status;
}

absl::Status HostSlab::MoveToParking(SlotId slot, std::byte* home) {
  std::byte* address = Address(slot);
  std::atomic<bool>& at_home = at_home_[static_cast<size_t>(slot.value())];
  GANTRY_CHECK(at_home.load()) << slot << " is not mapped at a home address";
  GANTRY_RETURN_IF_ERROR(MovePages(options_.move_method,
                                   {.from = home, .to = address, .bytes = slot_bytes().count()}));
  at_home.store(false);
  return absl::OkStatus();
}

}  // namespace gantry
