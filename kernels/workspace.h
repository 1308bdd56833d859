// Scratch memory that callers pass to kernels, so that a kernel allocates nothing.
//
// A kernel describes its scratch once, as calls of WorkspaceCursor::Take; the same description run
// on a counting cursor gives the number of bytes that the caller must bring. ScratchSlots divides
// a workspace among the tasks that may run at the same time.
#ifndef GANTRY_KERNELS_WORKSPACE_H_
#define GANTRY_KERNELS_WORKSPACE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/bytes.h"
#include "base/check.h"

namespace gantry {

// Workspaces start on such a boundary and every array in them does.
inline constexpr int64_t kWorkspaceAlignment = 64;

// Hands out consecutive aligned arrays of a workspace. Not thread-safe.
class WorkspaceCursor {
 public:
  // Counts only: Take returns null.
  WorkspaceCursor() = default;
  // REQUIRES: `workspace` starts on a kWorkspaceAlignment boundary.
  explicit WorkspaceCursor(std::span<std::byte> workspace);

  // The next `count` elements, uninitialised. REQUIRES: they fit (unless counting).
  template <typename T>
  T* Take(int64_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    return reinterpret_cast<T*>(TakeBytes(count * static_cast<int64_t>(sizeof(T))));
  }
  Bytes taken() const { return Bytes(taken_); }

 private:
  std::byte* TakeBytes(int64_t bytes);

  std::byte* base_ = nullptr;
  int64_t capacity_ = 0;
  int64_t taken_ = 0;
};

// `slots` equal parts of a workspace for the concurrent tasks of one parallel loop.
// Acquire is thread-safe.
class ScratchSlots {
 public:
  struct Options {
    int64_t slots;  // at least the threads of the team
    Bytes bytes_each;
  };
  static Bytes WorkspaceBytes(Options options);
  // REQUIRES: workspace.size() >= WorkspaceBytes(options), aligned as above.
  ScratchSlots(std::span<std::byte> workspace, Options options);

  // One part, held until destruction.
  class Slot {
   public:
    Slot(std::atomic<uint32_t>* busy, std::span<std::byte> memory) : busy_(busy), memory_(memory) {}
    ~Slot() { busy_->store(0, std::memory_order_release); }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    std::span<std::byte> memory() const { return memory_; }

   private:
    std::atomic<uint32_t>* busy_;
    std::span<std::byte> memory_;
  };
  // Waits (yielding) only when more tasks run than there are slots.
  Slot Acquire();

 private:
  Options options_;
  std::atomic<uint32_t>* busy_ = nullptr;
  std::byte* memory_ = nullptr;
};

}  // namespace gantry

#endif  // GANTRY_KERNELS_WORKSPACE_H_
