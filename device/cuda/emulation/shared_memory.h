// The shared memory of one block: variables with gaps between them (which fault under ASan), filled
// with a pattern that is no number when a block starts.
//
// As a race detector it shows each thread, in its turn between two barriers, what the memory held
// at the last barrier, the thread's own writes since, and, where another thread has written since,
// garbage; and it reports bytes that two threads write. So a kernel that lacks a barrier gives
// different results when threads take turns in ascending and in descending order, or an error.
// Barriers of a warp make its writes visible to the warp.
//
// Thread-compatible.
#ifndef GANTRY_DEVICE_CUDA_EMULATION_SHARED_MEMORY_H_
#define GANTRY_DEVICE_CUDA_EMULATION_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gantry {

inline constexpr int64_t kSharedBytesMax = 227 * 1024;  // of a block, compute capability 9.0

class SharedMemory {
 public:
  explicit SharedMemory(bool find_races);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Forgets all variables. `dynamic_bytes`: of the one that the launch brings.
  void BeginBlock(int64_t dynamic_bytes);
  std::byte* dynamic() const { return dynamic_; }
  bool finds_races() const { return find_races_; }
  // The variable that `key` identifies, made when it is asked for first. Null: no room.
  std::byte* Variable(const void* key, std::string_view name, int64_t bytes, int64_t alignment);

  // ---- The race detector; nothing happens without it. ----
  void BeginTurn(int thread);
  // What went wrong in the thread's turn; empty: nothing.
  std::string EndTurn(int thread);
  // The warp's threads have met: each sees what the others wrote before.
  void SyncWarp(int warp);
  // All threads have met.
  void EndInterval();
  // Atomic operations: whether the address is in this memory; makes the value that all threads'
  // atomic operations left visible there. AfterAtomic takes what was stored.
  bool BeforeAtomic(void* address, int64_t bytes);
  void AfterAtomic(void* address, int64_t bytes);

 private:
  struct Named {
    const void* key;
    std::string name;
    int64_t offset;
    int64_t bytes;
  };
  // Who wrote a byte since the last barrier: nobody, atomic operations, a thread, or a warp before
  // its own barrier.
  using Writer = int32_t;
  static constexpr Writer kNobody = -1;
  static constexpr Writer kAtomic = -2;
  static constexpr Writer kFirstWarp = 1 << 16;

  static bool Sees(Writer writer, int thread);
  std::byte* Place(const void* key, std::string_view name, int64_t bytes, int64_t alignment);
  std::string NameOf(int64_t offset) const;

  const bool find_races_;
  std::byte* memory_ = nullptr;
  int64_t used_ = 0;
  int64_t variable_bytes_ = 0;  // of these, of variables
  std::byte* dynamic_ = nullptr;
  std::vector<Named> variables_;
  std::vector<std::byte> at_barrier_;  // what the memory held
  std::vector<std::byte> merged_;      // with all writes since
  std::vector<std::byte> shown_;       // what the thread whose turn it is found
  std::vector<Writer> writers_;        // by byte
  bool written_ = false;               // any byte, since the barrier
  bool shows_barrier_ = false;         // the memory and shown_ are at_barrier_
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_EMULATION_SHARED_MEMORY_H_
