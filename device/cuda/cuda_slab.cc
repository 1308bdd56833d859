#include "device/cuda/cuda_slab.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_context.h"
#include "device/device.h"

namespace gantry {
namespace {

absl::Status Validate(const CudaSlab::Options& options) {
  const int64_t granularity = options.context->granularity().count();
  const Device::SlabOptions& slab = options.slab;
  if (slab.slot_bytes.count() <= 0 || slab.slot_bytes.count() % granularity != 0) {
    return InvalidArgument("slots of ", slab.slot_bytes.count(),
                           " bytes: not a positive multiple of ", granularity,
                           ", the granularity of ", options.context->name());
  }
  if (slab.slot_count < 0) return InvalidArgument("a slab of ", slab.slot_count, " slots");
  return absl::OkStatus();
}

absl::Status CheckRoom(CudaContext& context, const Device::SlabOptions& slab) {
  CudaMemoryInfo info;
  GANTRY_RETURN_IF_ERROR(context.Enter());
  GANTRY_RETURN_IF_ERROR(context.Check(context.calls().MemoryInfo(&info), "cudaMemGetInfo()"));
  int64_t bytes = 0;
  const bool overflow = __builtin_mul_overflow(slab.slot_bytes.count(), slab.slot_count, &bytes);
  if (!overflow && Bytes(bytes) <= info.free) return absl::OkStatus();
  return ResourceExhausted(slab.slot_count, " slots of ", slab.slot_bytes, " need ",
                           overflow ? "more than 8 EiB" : Bytes(bytes).ToString(), " of ",
                           context.name(), "; it has ", info.free, " free of ", info.total,
                           ", the rest is used by this and other processes");
}

}  // namespace

CudaSlab::CudaSlab(const Options& options)
    : options_(options),
      context_(*options.context),
      at_home_(static_cast<size_t>(options.slab.slot_count)),
      in_use_until_(static_cast<size_t>(options.slab.slot_count)) {}

absl::StatusOr<std::unique_ptr<CudaSlab>> CudaSlab::Create(const Options& options) {
  GANTRY_RETURN_IF_ERROR(Validate(options));
  GANTRY_RETURN_IF_ERROR(CheckRoom(*options.context, options.slab));
  std::unique_ptr<CudaSlab> slab(new CudaSlab(options));
  if (options.slab.slot_count == 0) return slab;
  // What was made before an error goes with the slab.
  if (options.context->virtual_memory()) {
    CudaContext& context = *options.context;
    std::byte* base = nullptr;
    GANTRY_RETURN_IF_ERROR(context.Check(context.calls().ReserveAddresses(slab->size(), &base),
                                         "cuMemAddressReserve(", slab->size(), ")"));
    slab->base_ = base;
    for (int64_t slot = 0; slot < slab->slot_count(); ++slot) {
      GANTRY_RETURN_IF_ERROR(slab->AddSlot(slot));
    }
    GANTRY_RETURN_IF_ERROR(context.Check(
        context.calls().SetAccess(context.device(), base, slab->size()), "cuMemSetAccess(",
        slab->size(), "), parking of ", slab->slot_count(), " slots"));
  } else {
    GANTRY_RETURN_IF_ERROR(slab->Allocate(slab->size()));
  }
  options.context->Announce(slab->base_, slab->size(), slab.get());
  return slab;
}

absl::Status CudaSlab::Allocate(Bytes bytes) {
  return context_.Check(context_.calls().Allocate(bytes, &base_), "cudaMalloc(", bytes, ")");
}

absl::Status CudaSlab::AddSlot(int64_t slot) {
  CudaCalls& calls = context_.calls();
  CudaPhysicalMemory memory;
  GANTRY_RETURN_IF_ERROR(
      context_.Check(calls.CreatePhysical(context_.device(), slot_bytes(), &memory), "cuMemCreate(",
                     slot_bytes(), "), slot ", slot, " of ", slot_count()));
  physical_.push_back(memory);
  mapped_.push_back(false);
  std::byte* address = base_ + slot * slot_bytes().count();
  GANTRY_RETURN_IF_ERROR(context_.Check(calls.Map(address, slot_bytes(), memory),
                                        "cuMemMap(), parking of slot ", slot));
  mapped_.back() = true;
  return absl::OkStatus();
}

CudaSlab::~CudaSlab() {
  GANTRY_CHECK_EQ(spaces_.load(), 0) << "a slab was destroyed before its address spaces";
  if (base_ == nullptr) return;
  context_.Forget(base_);
  options_.queue->WaitForAll();  // it may use the slots
  CudaCalls& calls = context_.calls();
  if (!context_.virtual_memory()) {
    context_.Release(calls.Free(base_), "cudaFree(", size(), ")");
    return;
  }
  bool empty = true;
  for (size_t slot = 0; slot < physical_.size(); ++slot) {
    if (mapped_[slot]) {
      std::byte* address = base_ + static_cast<int64_t>(slot) * slot_bytes().count();
      empty &= context_.Release(calls.Unmap(address, slot_bytes()),
                                "cuMemUnmap(), parking of slot ", slot);
    }
    context_.Release(calls.ReleasePhysical(physical_[slot]), "cuMemRelease(), slot ", slot);
  }
  if (empty) {
    context_.Release(calls.FreeAddresses(base_, size()), "cuMemAddressFree(", size(), ")");
  }
}

size_t CudaSlab::Index(SlotId slot) const {
  GANTRY_CHECK(slot.value() >= 0 && slot.value() < slot_count())
      << slot << " of " << slot_count() << " slots";
  return static_cast<size_t>(slot.value());
}

std::byte* CudaSlab::parking(SlotId slot) const {
  const size_t index = Index(slot);
  GANTRY_CHECK(!at_home_[index].load()) << slot << " is mapped at a home address";
  return base_ + slot.value() * slot_bytes().count();
}

void CudaSlab::SetAtHome(SlotId slot, bool at_home) {
  GANTRY_CHECK(at_home_[Index(slot)].exchange(at_home) != at_home)
      << slot << (at_home ? " is already" : " is not") << " mapped at a home address";
}

void CudaSlab::SetInUseUntil(SlotId slot, QueuePoint point) {
  in_use_until_[Index(slot)].store(point.number);
}

QueuePoint CudaSlab::InUseUntil(int64_t offset, int64_t bytes) const {
  const int64_t slot = slot_bytes().count();
  QueuePoint until;
  for (int64_t i = offset / slot; i <= (offset + bytes - 1) / slot; ++i) {
    until = std::max(until, in_use_until(SlotId(i)));
  }
  return until;
}

}  // namespace gantry
