#include "device/cuda/emulation/emulator.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/check.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/cuda/emulation/fiber.h"
#include "device/cuda/emulation/shared_memory.h"
#include "device/cuda/launch_shape.h"

namespace gantry {
namespace {

// Whose kernel this thread of the operating system runs; fibers have no other way to know.
thread_local Emulator* current = nullptr;

Dimensions IndexOf(const Dimensions& extents, int64_t number) {
  return {.x = static_cast<uint32_t>(number % extents.x),
          .y = static_cast<uint32_t>(number / extents.x % extents.y),
          .z = static_cast<uint32_t>(number / extents.x / extents.y)};
}

std::string Show(const Dimensions& index) {
  return StrCat("(", index.x, ", ", index.y, ", ", index.z, ")");
}

}  // namespace

Emulator::Emulator(const EmulatorOptions& options)
    : options_(options), shared_(options.find_races) {}

Emulator::~Emulator() = default;

Emulator& Emulator::Current() {
  GANTRY_CHECK(current != nullptr) << "device code runs outside a kernel";
  return *current;
}

absl::Status Emulator::CheckShape(std::string_view kernel, const LaunchShape& shape) {
  const Dimensions& grid = shape.grid;
  const Dimensions& block = shape.block;
  const bool grid_fits =
      grid.count() > 0 && grid.x <= 0x7fffffff && grid.y <= 65535 && grid.z <= 65535;
  const bool block_fits = block.count() > 0 && block.count() <= kBlockThreadsMax && block.z <= 64;
  if (!grid_fits || !block_fits || shape.shared_bytes < 0 || shape.shared_bytes > kSharedBytesMax) {
    return InvalidArgument(kernel, ": no GPU runs a grid of ", Show(grid), " blocks of ",
                           Show(block), " threads with ", shape.shared_bytes,
                           " bytes of shared memory");
  }
  return absl::OkStatus();
}

absl::Status Emulator::Run(std::string_view kernel, const LaunchShape& shape,
                           absl::FunctionRef<void()> thread) {
  GANTRY_CHECK(current == nullptr) << "a kernel starts a kernel";
  GANTRY_RETURN_IF_ERROR(CheckShape(kernel, shape));
  kernel_ = std::string(kernel);
  shape_ = shape;
  body_ = &thread;
  failure_.clear();
  threads_used_ = static_cast<int>(shape.block.count());
  if (threads_.size() < static_cast<size_t>(threads_used_)) {
    threads_.resize(static_cast<size_t>(threads_used_));
  }
  current = this;
  absl::Status status;
  const int64_t blocks = shape.grid.count();
  DrawOrder(blocks);
  const std::vector<int64_t> block_order = order_;
  for (int64_t i = 0; i < blocks && status.ok(); ++i) {
    block_index_ = IndexOf(shape.grid, block_order[static_cast<size_t>(i)]);
    status = RunBlock();
  }
  current = nullptr;
  body_ = nullptr;
  if (!status.ok()) threads_.clear();  // fibers that stopped somewhere cannot be used again
  return status;
}

void Emulator::DrawOrder(int64_t count) {
  order_.resize(static_cast<size_t>(count));
  std::iota(order_.begin(), order_.end(), 0);
  if (options_.order == TurnOrder::kDescending) std::ranges::reverse(order_);
  if (options_.order != TurnOrder::kSeeded) return;
  const Random random({.seed = options_.seed, .stream = 0});
  for (int64_t i = count - 1; i > 0; --i) {
    std::swap(order_[static_cast<size_t>(i)],
              order_[static_cast<size_t>(random.Below(i + 1, draws_++))]);
  }
}

absl::Status Emulator::RunBlock() {
  shared_.BeginBlock(shape_.shared_bytes);
  warps_.clear();
  warps_.resize(static_cast<size_t>((threads_used_ + kWarpThreads - 1) / kWarpThreads));
  for (int i = 0; i < threads_used_; ++i) {
    Thread& thread = threads_[static_cast<size_t>(i)];
    thread.state = State::kReady;
    if (thread.fiber != nullptr) continue;
    thread.fiber = std::make_unique<Fiber>(options_.stack_bytes, [this] {
      while (true) {  // a block's threads are used again for the next block
        (*body_)();
        ++ended_;
        Wait(State::kEnded, "");
      }
    });
  }
  ended_ = 0;
  at_barrier_ = 0;
  contributions_ = 0;
  while (ended_ < threads_used_) {
    bool progress = false;
    DrawOrder(static_cast<int64_t>(warps_.size()));
    const std::vector<int64_t> warp_order = order_;
    for (const int64_t warp : warp_order) {
      progress = RunWarp(static_cast<int>(warp)) || progress;
      if (!failure_.empty()) return ErrorAt(failure_);
    }
    if (at_barrier_ > 0 && at_barrier_ + ended_ == threads_used_) {
      ReleaseBarrier();
    } else if (!progress) {
      return Stuck();
    }
  }
  return absl::OkStatus();
}

bool Emulator::RunWarp(int warp) {
  const int first = warp * kWarpThreads;
  const int lanes = std::min(kWarpThreads, threads_used_ - first);
  int64_t rounds = std::numeric_limits<int64_t>::max();
  if (options_.order == TurnOrder::kSeeded) {
    const Random random({.seed = options_.seed, .stream = 1});
    if (const int64_t drawn = random.Below(8, draws_++); drawn > 0) rounds = drawn;
  }
  for (int64_t round = 0; round < rounds; ++round) {
    bool ran = false;
    DrawOrder(lanes);
    for (const int64_t lane : order_) {
      const int thread = first + static_cast<int>(lane);
      if (threads_[static_cast<size_t>(thread)].state != State::kReady) continue;
      ran = true;
      RunTurn(thread);
      if (!failure_.empty()) return true;
    }
    if (!ran) return round > 0;
  }
  return true;
}

void Emulator::RunTurn(int thread) {
  running_ = thread;
  thread_index_ = IndexOf(shape_.block, thread);
  shared_.BeginTurn(thread);
  threads_[static_cast<size_t>(thread)].fiber->Resume();
  if (const std::string race = shared_.EndTurn(thread); !race.empty() && failure_.empty()) {
    failure_ = race;
  }
}

void Emulator::Wait(State state, std::string_view what) {
  Thread& thread = threads_[static_cast<size_t>(running_)];
  thread.state = state;
  thread.waits_in = what;
  thread.fiber->Suspend();
}

int64_t Emulator::SyncThreads(std::string_view what, int64_t contribution) {
  ++at_barrier_;
  contributions_ += contribution;
  Wait(State::kAtBarrier, what);
  return contributed_;
}

void Emulator::ReleaseBarrier() {
  shared_.EndInterval();
  at_barrier_ = 0;
  contributed_ = std::exchange(contributions_, 0);
  for (int i = 0; i < threads_used_; ++i) {
    Thread& thread = threads_[static_cast<size_t>(i)];
    if (thread.state == State::kAtBarrier) thread.state = State::kReady;
  }
}

Emulator::Meeting& Emulator::MeetingOf(uint32_t mask) {
  Warp& warp = warps_[static_cast<size_t>(running_ / kWarpThreads)];
  for (const auto& meeting : warp.meetings) {
    if (meeting->mask == mask) return *meeting;
  }
  warp.meetings.push_back(std::make_unique<Meeting>());
  warp.meetings.back()->mask = mask;
  return *warp.meetings.back();
}

const Emulator::Exchanged& Emulator::Exchange(std::string_view what, uint32_t mask,
                                              std::span<const std::byte> bytes) {
  GANTRY_CHECK(bytes.size() <= kLaneBytesMax);
  const auto own = static_cast<uint32_t>(lane());
  if ((mask >> own & 1) == 0) Fail("calls ", what, " with a mask that lacks its lane");
  const int first = running_ - lane();
  const int lanes = std::min(kWarpThreads, threads_used_ - first);
  if (lanes < kWarpThreads && mask >> lanes != 0 && mask != 0xffffffff) {
    Fail("calls ", what, " with a mask of lanes that the block does not have");
  }
  // A whole warp's mask is allowed in the last warp of a block that is no multiple of 32.
  const uint32_t present = lanes < kWarpThreads ? mask & ((1U << lanes) - 1) : mask;
  Meeting& meeting = MeetingOf(present);
  if (meeting.arrived == 0) meeting.what = what;
  if (meeting.what != what) {
    Fail("calls ", what, " where lane ", std::countr_zero(meeting.arrived), " calls ",
         meeting.what);
  }
  Exchanged& result = meeting.results[meeting.next];
  std::ranges::copy(bytes, result.lanes[own].begin());
  meeting.arrived |= 1U << own;
  if (meeting.arrived != present) {
    threads_[static_cast<size_t>(running_)].mask = present;
    Wait(State::kInExchange, what);
    return result;
  }
  meeting.arrived = 0;
  meeting.next ^= 1;
  for (int i = first; i < first + lanes; ++i) {
    Thread& thread = threads_[static_cast<size_t>(i)];
    if (i != running_ && thread.state == State::kInExchange && thread.mask == present) {
      thread.state = State::kReady;
    }
  }
  return result;
}

void Emulator::SyncWarp(uint32_t mask) {
  Exchange("__syncwarp", mask, {});
  if (!options_.find_races) return;
  // What the thread wrote before belongs to the warp now, what it writes from here on does not.
  const std::string race = shared_.EndTurn(running_);
  if (!race.empty() && failure_.empty()) failure_ = race;
  shared_.SyncWarp(running_ / kWarpThreads);
  shared_.BeginTurn(running_);
}

absl::Status Emulator::ErrorAt(std::string_view what) const {
  return Internal(kernel_, ", block ", Show(block_index_), ": ", what);
}

// Nobody can go on: who waits for what?
absl::Status Emulator::Stuck() const {
  const auto first_in = [&](State state) {
    for (int i = 0; i < threads_used_; ++i) {
      if (threads_[static_cast<size_t>(i)].state == state) return i;
    }
    return -1;
  };
  std::string waits;
  for (const State state : {State::kAtBarrier, State::kInExchange}) {
    const int thread = first_in(state);
    if (thread < 0) continue;
    waits += StrCat(waits.empty() ? "" : ", ", "thread ", thread, " waits in ",
                    threads_[static_cast<size_t>(thread)].waits_in);
  }
  return ErrorAt(
      StrCat("stuck: ", waits, "; ", ended_, " of ", threads_used_, " threads have ended"));
}

}  // namespace gantry
