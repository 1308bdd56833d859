#include "device/cuda/emulation/shared_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/strings.h"

#if defined(GANTRY_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace gantry {
namespace {

constexpr int64_t kWarp = 32;
constexpr int64_t kGap = 64;  // between variables
// Gaps take room beside what a block may have.
constexpr int64_t kMemoryBytes = 2 * kSharedBytesMax;
constexpr auto kPattern = std::byte{0xFF};  // a NaN in every floating-point type

void Mark([[maybe_unused]] std::byte* from, [[maybe_unused]] int64_t bytes) {
#if defined(GANTRY_ASAN)
  __asan_poison_memory_region(from, static_cast<size_t>(bytes));
#endif
}
void Unmark([[maybe_unused]] std::byte* from, [[maybe_unused]] int64_t bytes) {
#if defined(GANTRY_ASAN)
  __asan_unpoison_memory_region(from, static_cast<size_t>(bytes));
#endif
}

}  // namespace

SharedMemory::SharedMemory(bool find_races)
    : find_races_(find_races),
      memory_(
          static_cast<std::byte*>(std::aligned_alloc(1024, static_cast<size_t>(kMemoryBytes)))) {
  GANTRY_CHECK(memory_ != nullptr);
  Mark(memory_, kMemoryBytes);
}

SharedMemory::~SharedMemory() {
  Unmark(memory_, kMemoryBytes);
  std::free(memory_);
}

void SharedMemory::BeginBlock(int64_t dynamic_bytes) {
  Mark(memory_, kMemoryBytes);
  variables_.clear();
  used_ = 0;
  variable_bytes_ = 0;
  at_barrier_.clear();
  merged_.clear();
  writers_.clear();
  written_ = false;
  dynamic_ = Place(nullptr, "dynamic shared memory", dynamic_bytes, 1024);
  GANTRY_CHECK(dynamic_ != nullptr) << dynamic_bytes << " bytes of dynamic shared memory";
}

std::byte* SharedMemory::Variable(const void* key, std::string_view name, int64_t bytes,
                                  int64_t alignment) {
  for (const Named& variable : variables_) {
    if (variable.key == key) return memory_ + variable.offset;
  }
  return Place(key, name, bytes, alignment);
}

std::byte* SharedMemory::Place(const void* key, std::string_view name, int64_t bytes,
                               int64_t alignment) {
  const int64_t offset = (used_ + kGap + alignment - 1) / alignment * alignment;
  if (variable_bytes_ + bytes > kSharedBytesMax || offset + bytes + kGap > kMemoryBytes) {
    return nullptr;
  }
  variable_bytes_ += bytes;
  used_ = offset + bytes;
  shows_barrier_ = false;
  variables_.push_back({.key = key, .name = std::string(name), .offset = offset, .bytes = bytes});
  Unmark(memory_ + offset, bytes);
  std::memset(memory_ + offset, static_cast<int>(kPattern), static_cast<size_t>(bytes));
  if (find_races_) {
    const auto size = static_cast<size_t>(used_);
    at_barrier_.resize(size, kPattern);
    merged_.resize(size, kPattern);
    shown_.resize(size, kPattern);
    writers_.resize(size, kNobody);
  }
  return memory_ + offset;
}

bool SharedMemory::Sees(Writer writer, int thread) {
  return writer == thread || writer == kFirstWarp + thread / kWarp;
}

void SharedMemory::BeginTurn(int thread) {
  if (!find_races_ || (shows_barrier_ && !written_)) return;
  shows_barrier_ = !written_;
  for (const Named& variable : variables_) {
    const auto from = static_cast<size_t>(variable.offset);
    const auto count = static_cast<size_t>(variable.bytes);
    if (!written_) {
      std::memcpy(shown_.data() + from, at_barrier_.data() + from, count);
    } else {
      for (size_t i = from; i < from + count; ++i) {
        const Writer writer = writers_[i];
        if (writer == kNobody) {
          shown_[i] = at_barrier_[i];
        } else {
          shown_[i] = Sees(writer, thread) ? merged_[i] : ~merged_[i];
        }
      }
    }
    std::memcpy(memory_ + from, shown_.data() + from, count);
  }
}

std::string SharedMemory::EndTurn(int thread) {
  if (!find_races_) return "";
  for (const Named& variable : variables_) {
    const auto from = static_cast<size_t>(variable.offset);
    const auto count = static_cast<size_t>(variable.bytes);
    if (std::memcmp(memory_ + from, shown_.data() + from, count) == 0) continue;
    for (size_t i = from; i < from + count; ++i) {
      if (memory_[i] == shown_[i]) continue;
      Writer& writer = writers_[i];
      if (writer != kNobody && !Sees(writer, thread)) {
        const std::string other = writer == kAtomic      ? "an atomic operation"
                                  : writer >= kFirstWarp ? StrCat("warp ", writer - kFirstWarp)
                                                         : StrCat("thread ", writer);
        return StrCat("thread ", thread, " writes ", NameOf(static_cast<int64_t>(i)), ", which ",
                      other, " wrote since the last barrier");
      }
      writer = thread;
      merged_[i] = memory_[i];
      written_ = true;
    }
  }
  return "";
}

void SharedMemory::SyncWarp(int warp) {
  if (!find_races_ || !written_) return;
  for (Writer& writer : writers_) {
    if (writer >= 0 && writer < kFirstWarp && writer / kWarp == warp) writer = kFirstWarp + warp;
  }
}

void SharedMemory::EndInterval() {
  if (!find_races_) return;
  if (!written_) return;
  at_barrier_ = merged_;
  std::ranges::fill(writers_, kNobody);
  written_ = false;
  shows_barrier_ = false;
}

bool SharedMemory::BeforeAtomic(void* address, int64_t bytes) {
  const auto* at = static_cast<std::byte*>(address);
  if (at < memory_ || at >= memory_ + used_) return false;
  if (!find_races_) return true;
  const auto from = static_cast<size_t>(at - memory_);
  const auto count = static_cast<size_t>(bytes);
  for (size_t i = from; i < from + count; ++i) {
    // What the thread itself wrote in this turn is not merged yet.
    if (memory_[i] != shown_[i]) merged_[i] = memory_[i];
    memory_[i] = merged_[i];
  }
  return true;
}

void SharedMemory::AfterAtomic(void* address, int64_t bytes) {
  if (!find_races_) return;
  const auto from = static_cast<size_t>(static_cast<std::byte*>(address) - memory_);
  for (size_t i = from; i < from + static_cast<size_t>(bytes); ++i) {
    merged_[i] = memory_[i];
    writers_[i] = kAtomic;
    // Another plain look is garbage, and no write of the thread.
    memory_[i] = ~memory_[i];
    shown_[i] = memory_[i];
  }
  written_ = true;
}

std::string SharedMemory::NameOf(int64_t offset) const {
  for (const Named& variable : variables_) {
    if (offset >= variable.offset && offset < variable.offset + variable.bytes) {
      return StrCat("byte ", offset - variable.offset, " of ", variable.name);
    }
  }
  return "unnamed bytes";
}

}  // namespace gantry
