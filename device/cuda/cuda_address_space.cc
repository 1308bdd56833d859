#include "device/cuda/cuda_address_space.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/cuda_queue.h"
#include "device/cuda/cuda_slab.h"
#include "device/cuda/cuda_unmapper.h"
#include "device/device.h"

namespace gantry {

absl::StatusOr<std::unique_ptr<CudaAddressSpace>> CudaAddressSpace::Create(const Options& options) {
  CudaContext& context = *options.context;
  if (options.pages < 0) return InvalidArgument("an address space of ", options.pages, " pages");
  if (!context.virtual_memory()) {
    return MakeStatus(absl::StatusCode::kUnimplemented, context.name(),
                      " cannot map memory at fixed addresses (no virtual memory management; a "
                      "virtual GPU may lack it): it can hold blocks without homes only");
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(options.pages, options.slab->slot_bytes().count(), &bytes)) {
    return ResourceExhausted("no address range of ", options.pages, " pages of ",
                             options.slab->slot_bytes());
  }
  std::unique_ptr<CudaAddressSpace> space(new CudaAddressSpace(options));
  options.slab->AttachSpace();
  if (bytes == 0) return space;
  GANTRY_RETURN_IF_ERROR(
      context.Check(context.calls().ReserveAddresses(Bytes(bytes), &space->base_),
                    "cuMemAddressReserve(", Bytes(bytes), "), ", options.pages, " pages"));
  context.Announce(space->base_, Bytes(bytes), space.get());
  return space;
}

CudaAddressSpace::~CudaAddressSpace() {
  if (base_ != nullptr) {
    context_.Forget(base_);
    for (int64_t page = 0; page < page_count(); ++page) {
      bool at_home = false;
      {
        MutexLock lock(mutex_);
        at_home = pages_[static_cast<size_t>(page)].slot >= 0;
      }
      // A failure was kept with the page; the addresses then stay reserved.
      if (at_home) static_cast<void>(Unmap(page));
    }
    MutexLock lock(mutex_);
    while (leaving_ > 0) changed_.Wait(mutex_);
    const bool empty = std::ranges::none_of(pages_, &Page::mapped);
    if (empty) {
      context_.Release(context_.calls().FreeAddresses(base_, size()), "cuMemAddressFree(", size(),
                       ")");
    }
  }
  options_.slab->DetachSpace();
}

std::byte* CudaAddressSpace::Home(int64_t page) const {
  GANTRY_CHECK(page >= 0 && page < page_count()) << "page " << page << " of " << page_count();
  return base_ + page * page_bytes().count();
}

absl::Status CudaAddressSpace::MapAt(std::byte* home, SlotId slot) {
  CudaCalls& calls = context_.calls();
  GANTRY_RETURN_IF_ERROR(
      context_.Check(calls.Map(home, page_bytes(), options_.slab->physical(slot)), "cuMemMap(",
                     page_bytes(), "), ", slot));
  const absl::Status access = context_.Check(calls.SetAccess(context_.device(), home, page_bytes()),
                                             "cuMemSetAccess(", page_bytes(), "), ", slot);
  if (!access.ok()) {
    context_.Release(calls.Unmap(home, page_bytes()), "cuMemUnmap(", page_bytes(), "), ", slot);
  }
  return access;
}

absl::Status CudaAddressSpace::Map(int64_t page, SlotId slot) {
  std::byte* home = Home(page);
  {
    MutexLock lock(mutex_);
    Page& entry = pages_[static_cast<size_t>(page)];
    GANTRY_CHECK_EQ(entry.slot, -1) << "page " << page << " has a slot, cannot map " << slot;
    // Its last slot is still there, for work that is not done.
    while (entry.leaving) changed_.Wait(mutex_);
    GANTRY_RETURN_IF_ERROR(entry.broken);
  }
  options_.slab->SetAtHome(slot, true);
  absl::Status mapped = MapAt(home, slot);
  if (!mapped.ok()) {
    options_.slab->SetAtHome(slot, false);
    return mapped;
  }
  MutexLock lock(mutex_);
  Page& entry = pages_[static_cast<size_t>(page)];
  entry.slot = slot.value();
  entry.mapped = true;
  return absl::OkStatus();
}

absl::Status CudaAddressSpace::UnmapAt(int64_t page) {
  return context_.Check(context_.calls().Unmap(Home(page), page_bytes()), "cuMemUnmap(",
                        page_bytes(), "), page ", page);
}

absl::Status CudaAddressSpace::Unmap(int64_t page) {
  GANTRY_CHECK(Home(page) != nullptr);
  GANTRY_RETURN_IF_ERROR(context_.failure());
  GANTRY_ASSIGN_OR_RETURN(const QueuePoint point, options_.queue->Mark());
  const bool now = options_.queue->Reached(point);
  // A page that cannot be unmapped now stays as it is.
  if (now) GANTRY_RETURN_IF_ERROR(UnmapAt(page));
  MutexLock lock(mutex_);
  Page& entry = pages_[static_cast<size_t>(page)];
  GANTRY_CHECK_GE(entry.slot, 0) << "page " << page << " has no slot";
  const SlotId slot(std::exchange(entry.slot, -1));
  entry.mapped = !now;
  options_.slab->SetInUseUntil(slot, point);
  options_.slab->SetAtHome(slot, false);
  if (now) return absl::OkStatus();
  entry.leaving = true;
  ++leaving_;
  options_.unmapper->After(point, [this, page] { FinishUnmap(page); });
  return absl::OkStatus();
}

void CudaAddressSpace::FinishUnmap(int64_t page) {
  const absl::Status status = UnmapAt(page);
  MutexLock lock(mutex_);
  Page& entry = pages_[static_cast<size_t>(page)];
  entry.leaving = false;
  entry.mapped = !status.ok();
  entry.broken = status;
  --leaving_;
  changed_.NotifyAll();
}

QueuePoint CudaAddressSpace::InUseUntil(int64_t offset, int64_t bytes) const {
  const int64_t page = page_bytes().count();
  QueuePoint until;
  MutexLock lock(mutex_);
  for (int64_t i = offset / page; i <= (offset + bytes - 1) / page; ++i) {
    const int64_t slot = pages_[static_cast<size_t>(i)].slot;
    if (slot >= 0) until = std::max(until, options_.slab->in_use_until(SlotId(slot)));
  }
  return until;
}

}  // namespace gantry
