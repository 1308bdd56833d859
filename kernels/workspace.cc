#include "kernels/workspace.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <thread>

#include "base/bytes.h"
#include "base/check.h"

namespace gantry {

WorkspaceCursor::WorkspaceCursor(std::span<std::byte> workspace)
    : base_(workspace.data()), capacity_(static_cast<int64_t>(workspace.size())) {
  GANTRY_CHECK_EQ(reinterpret_cast<uintptr_t>(base_) % kWorkspaceAlignment, uintptr_t{0})
      << "workspace alignment";
}

std::byte* WorkspaceCursor::TakeBytes(int64_t bytes) {
  const int64_t begin = taken_;
  taken_ += RoundUp(bytes, kWorkspaceAlignment);
  if (base_ == nullptr && capacity_ == 0) return nullptr;
  GANTRY_CHECK_LE(taken_, capacity_) << "workspace bytes";
  return base_ + begin;
}

namespace {

struct Parts {
  std::atomic<uint32_t>* busy;
  std::byte* memory;
};

Parts Divide(WorkspaceCursor& cursor, const ScratchSlots::Options& options) {
  Parts parts;
  parts.busy = cursor.Take<std::atomic<uint32_t>>(options.slots);
  parts.memory = cursor.Take<std::byte>(options.slots *
                                        RoundUp(options.bytes_each.count(), kWorkspaceAlignment));
  return parts;
}

}  // namespace

Bytes ScratchSlots::WorkspaceBytes(Options options) {
  WorkspaceCursor counting;
  Divide(counting, options);
  return counting.taken();
}

ScratchSlots::ScratchSlots(std::span<std::byte> workspace, Options options) : options_(options) {
  GANTRY_CHECK_GE(options.slots, 1);
  WorkspaceCursor cursor(workspace);
  const Parts parts = Divide(cursor, options);
  busy_ = parts.busy;
  memory_ = parts.memory;
  for (int64_t slot = 0; slot < options.slots; ++slot) new (&busy_[slot]) std::atomic<uint32_t>(0);
}

ScratchSlots::Slot ScratchSlots::Acquire() {
  const int64_t stride = RoundUp(options_.bytes_each.count(), kWorkspaceAlignment);
  while (true) {
    for (int64_t slot = 0; slot < options_.slots; ++slot) {
      if (busy_[slot].exchange(1, std::memory_order_acquire) != 0) continue;
      return Slot(&busy_[slot], std::span(memory_ + slot * stride, static_cast<size_t>(stride)));
    }
    std::this_thread::yield();
  }
}

}  // namespace gantry
