// Anonymous address ranges, and moving the physical pages of one range to another with mremap.
//
// A move never leaves an address range unmapped, not even for a moment, because an mmap or malloc
// of another thread could be placed into the hole; and a touch of the side that has no pages always
// faults, because a page of zeros there would be garbage that nobody notices.
//
// Thread-safe for different ranges. Errors: kResourceExhausted when addresses run out, kInternal
// with errno for anything else.
#ifndef GANTRY_DEVICE_HOST_VIRTUAL_MEMORY_H_
#define GANTRY_DEVICE_HOST_VIRTUAL_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"

namespace gantry {

inline constexpr int64_t kHugePageBytes = int64_t{2} << 20;

// Owns a private anonymous mapping that starts at a multiple of 2 MiB; unmaps it whole, whatever
// was moved into it. Move-only; a moved-from range is empty.
class AddressRange {
 public:
  enum class Access {
    kNone,       // addresses only: every touch faults
    kReadWrite,  // memory, not yet touched
  };
  // An empty range (base() is null) for 0 bytes. REQUIRES: bytes a multiple of the page size.
  static absl::StatusOr<AddressRange> Reserve(Bytes bytes, Access access);

  AddressRange() = default;
  AddressRange(AddressRange&& other) noexcept;
  AddressRange& operator=(AddressRange&& other) noexcept;
  ~AddressRange();

  std::byte* base() const { return base_; }
  int64_t bytes() const { return bytes_; }

 private:
  AddressRange(std::byte* base, int64_t bytes) : base_(base), bytes_(bytes) {}

  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
};

// How the addresses that a move empties stay reserved.
enum class MoveMethod {
  // MREMAP_DONTUNMAP (Linux 5.7 for anonymous memory): the kernel keeps the source mapped.
  kKeepSource,
  // The source is unmapped and reserved again at once. Another thread can get there first; the
  // process then aborts, since what it has would be destroyed by the next move back.
  kRefillSource,
};

// kKeepSource when this kernel does it (found by moving a real page), else kRefillSource.
MoveMethod ProbeMoveMethod();

// The page-aligned ranges must not overlap.
struct PageMove {
  std::byte* from;  // readable and writable, every page present; becomes inaccessible
  std::byte* to;    // reserved and inaccessible; becomes readable and writable
  int64_t bytes;
};

// Moves the pages with their content; huge pages stay huge where both addresses are multiples of
// 2 MiB. Errors: kInternal with errno; both ranges are then as before.
absl::Status MovePages(MoveMethod method, const PageMove& move);

}  // namespace gantry

#endif  // GANTRY_DEVICE_HOST_VIRTUAL_MEMORY_H_
