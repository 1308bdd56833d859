// Anonymous memory on 2 MiB pages where the kernel gives them, every page touched. Owns the
// mapping; move-only. Thread-compatible.
#ifndef GANTRY_BENCHES_SUITE_HUGE_MEMORY_H_
#define GANTRY_BENCHES_SUITE_HUGE_MEMORY_H_

#include <cstddef>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "base/bytes.h"

namespace gantry {

class HugeMemory {
 public:
  HugeMemory() = default;
  // Errors: kResourceExhausted when the machine has not that much memory.
  static absl::StatusOr<HugeMemory> Create(Bytes bytes);
  HugeMemory(HugeMemory&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}
  HugeMemory& operator=(HugeMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~HugeMemory();

  std::byte* data() const { return memory_.data(); }
  std::span<std::byte> bytes() const { return memory_; }

 private:
  explicit HugeMemory(std::span<std::byte> memory) : memory_(memory) {}

  std::span<std::byte> memory_;
};

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_HUGE_MEMORY_H_
