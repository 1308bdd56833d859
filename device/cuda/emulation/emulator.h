// Runs a CUDA kernel on the CPU: blocks one after another, a block's threads in turns from barrier
// to barrier, each on a stack of its own. Barriers, shuffles and votes, shared memory and atomic
// operations mean what they mean on a GPU; a program that a GPU would leave undefined (a barrier
// that some threads miss, a shuffle from a lane that is not there) is an error that says where.
//
//   Emulator emulator({.order = TurnOrder::kDescending, .find_races = true});
//   GANTRY_RETURN_IF_ERROR(emulator.Run("Add", {.grid = {4}, .block = {256}}, [&] { Add(a, b); }));
//
// What kernels call is in device_code.h. Thread-compatible; several emulators may run at once.
#ifndef GANTRY_DEVICE_CUDA_EMULATION_EMULATOR_H_
#define GANTRY_DEVICE_CUDA_EMULATION_EMULATOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/strings.h"
#include "device/cuda/emulation/fiber.h"
#include "device/cuda/emulation/shared_memory.h"
#include "device/cuda/launch_shape.h"

namespace gantry {

// In which order blocks, warps and the threads of a warp take their turns. A warp goes as far as it
// can (drawn: as far or some turns far) before the next has a turn, so that one runs ahead of the
// others up to the next barrier. Results of a kernel without races do not depend on it.
enum class TurnOrder : uint8_t { kAscending, kDescending, kSeeded };

struct EmulatorOptions {
  TurnOrder order = TurnOrder::kAscending;
  uint64_t seed = 0;
  bool find_races = false;  // shared_memory.h
  size_t stack_bytes = size_t{64} << 10;
};

class Emulator {
 public:
  static constexpr int kWarpThreads = 32;
  static constexpr int kBlockThreadsMax = 1024;
  static constexpr size_t kLaneBytesMax = 80;  // that a lane gives in an exchange

  // Errors: kInvalidArgument for a shape that no GPU takes.
  static absl::Status CheckShape(std::string_view kernel, const LaunchShape& shape);

  explicit Emulator(const EmulatorOptions& options);
  ~Emulator();

  // Calls `thread` once for every thread of the grid. Errors: kInvalidArgument for a shape that no
  // GPU takes; kInternal for what the kernel did wrong, naming kernel, block and threads. The
  // threads' locals are forgotten then, not destroyed.
  absl::Status Run(std::string_view kernel, const LaunchShape& shape,
                   absl::FunctionRef<void()> thread);

  // ---- For code inside a kernel. ----
  static Emulator& Current();  // REQUIRES: a kernel runs on this thread
  const Dimensions& thread_index() const { return thread_index_; }
  const Dimensions& block_index() const { return block_index_; }
  const LaunchShape& shape() const { return shape_; }
  int lane() const { return running_ % kWarpThreads; }
  SharedMemory& shared() { return shared_; }

  // Waits for all threads of the block that have not ended. Returns the sum of what they brought.
  int64_t SyncThreads(std::string_view what, int64_t contribution);
  // Gives `bytes` and waits for the lanes of `mask`; then `[lane]` of the result is what each of
  // them gave, valid until the thread's next exchange.
  struct Exchanged {
    std::array<std::array<std::byte, kLaneBytesMax>, kWarpThreads> lanes;
  };
  const Exchanged& Exchange(std::string_view what, uint32_t mask, std::span<const std::byte> bytes);
  void SyncWarp(uint32_t mask);
  // Ends the kernel with an error, "thread N " and the parts. Does not return to the thread.
  template <typename... Parts>
  void Fail(const Parts&... parts) {
    failure_ = StrCat("thread ", running_, " ", parts...);
    Wait(State::kInExchange, "nothing");
  }

 private:
  enum class State : uint8_t { kReady, kAtBarrier, kInExchange, kEnded };
  struct Thread {
    std::unique_ptr<Fiber> fiber;
    State state = State::kEnded;
    std::string_view waits_in = {};  // literal
    uint32_t mask = 0;
  };
  // The lanes of one mask of one warp that meet. A lane can be one meeting ahead of another that
  // has not read the last one's result yet, so there are two results.
  struct Meeting {
    uint32_t mask = 0;
    uint32_t arrived = 0;
    std::string_view what = {};
    size_t next = 0;  // of the results: the one that fills
    std::array<Exchanged, 2> results;
  };
  struct Warp {
    std::vector<std::unique_ptr<Meeting>> meetings;
  };

  absl::Status RunBlock();
  // Whether any of its threads had a turn.
  bool RunWarp(int warp);
  void RunTurn(int thread);
  // A permutation of the numbers below `count`.
  void DrawOrder(int64_t count);
  void Wait(State state, std::string_view what);
  void ReleaseBarrier();
  absl::Status Stuck() const;
  absl::Status ErrorAt(std::string_view what) const;
  Meeting& MeetingOf(uint32_t mask);

  const EmulatorOptions options_;
  SharedMemory shared_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<int64_t> order_;
  uint64_t draws_ = 0;

  // Of the launch under way.
  std::string kernel_;
  LaunchShape shape_;
  const absl::FunctionRef<void()>* body_ = nullptr;
  Dimensions block_index_;
  Dimensions thread_index_;
  int running_ = 0;
  int threads_used_ = 0;
  int ended_ = 0;
  int at_barrier_ = 0;
  int64_t contributions_ = 0;
  int64_t contributed_ = 0;  // at the last barrier
  std::string failure_;
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_EMULATION_EMULATOR_H_
