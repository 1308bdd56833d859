#include "device/host/virtual_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;
constexpr int kReservation = kAnonymous | MAP_NORESERVE;

std::string Describe(const PageMove& move) {
  return StrCat(Bytes(move.bytes), " from ", static_cast<const void*>(move.from), " to ",
                static_cast<const void*>(move.to));
}

absl::Status MoveError(int error_number, const PageMove& move) {
  const char* hint =
      error_number == ENOMEM ? " (more mappings than sysctl vm.max_map_count allows?)" : "";
  return Internal("mremap of ", Describe(move), ": ", std::strerror(error_number), hint);
}

// The kernel empties the destination before it moves. Should it fail in between (out of page
// tables), the hole is reserved again; a destination that is still mapped is left alone.
void RepairDestination(const PageMove& move) {
  void* result = mmap(move.to, static_cast<size_t>(move.bytes), PROT_NONE,
                      kReservation | MAP_FIXED_NOREPLACE, -1, 0);
  GANTRY_CHECK(result == move.to || errno == EEXIST)
      << "lost the destination of a move of " << Describe(move) << ": " << std::strerror(errno);
}

// Each side is inaccessible from before its pages leave until after its pages have come, so no
// moment exists in which a touch would fault in a fresh page of zeros.
absl::Status MoveKeepingSource(const PageMove& move) {
  const size_t bytes = static_cast<size_t>(move.bytes);
  if (mprotect(move.from, bytes, PROT_NONE) != 0) return MoveError(errno, move);
  if (mremap(move.from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, move.to) ==
      MAP_FAILED) {
    const int error_number = errno;
    RepairDestination(move);
    GANTRY_CHECK_EQ(mprotect(move.from, bytes, PROT_READ | PROT_WRITE), 0)
        << "cannot undo a move of " << Describe(move) << ": " << std::strerror(errno);
    return MoveError(error_number, move);
  }
  // What the kernel keeps at the source is already inaccessible, but remembers where its pages came
  // from and so would never merge with its neighbours; a fresh reservation (replacing atomically)
  // does. When the kernel refuses (the mapping limit), the old one serves as well.
  static_cast<void>(mmap(move.from, bytes, PROT_NONE, kReservation | MAP_FIXED, -1, 0));
  GANTRY_CHECK_EQ(mprotect(move.to, bytes, PROT_READ | PROT_WRITE), 0)
      << "cannot finish a move of " << Describe(move) << ": " << std::strerror(errno);
  return absl::OkStatus();
}

absl::Status MoveRefillingSource(const PageMove& move) {
  const size_t bytes = static_cast<size_t>(move.bytes);
  if (mremap(move.from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, move.to) == MAP_FAILED) {
    const int error_number = errno;
    RepairDestination(move);
    return MoveError(error_number, move);
  }
  // A kernel without MAP_FIXED_NOREPLACE (before 4.17) takes the address as a hint.
  GANTRY_CHECK(mmap(move.from, bytes, PROT_NONE, kReservation | MAP_FIXED_NOREPLACE, -1, 0) ==
               move.from)
      << "another thread took the addresses that a move of " << Describe(move)
      << " emptied; Linux 5.7 (MREMAP_DONTUNMAP) does not have this race";
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AddressRange> AddressRange::Reserve(Bytes bytes, Access access) {
  GANTRY_CHECK_GE(bytes.count(), 0);
  GANTRY_CHECK_EQ(bytes.count() % sysconf(_SC_PAGESIZE), 0);
  if (bytes.count() == 0) return AddressRange();
  int64_t padded = 0;
  if (__builtin_add_overflow(bytes.count(), kHugePageBytes, &padded)) {
    return ResourceExhausted("no address range of ", bytes);
  }
  const bool accessible = access == Access::kReadWrite;
  void* mapping =
      mmap(nullptr, static_cast<size_t>(padded), accessible ? PROT_READ | PROT_WRITE : PROT_NONE,
           accessible ? kAnonymous : kReservation, -1, 0);
  if (mapping == MAP_FAILED) {
    return ResourceExhausted("no address range of ", bytes, ": mmap: ", std::strerror(errno));
  }
  auto* start = static_cast<std::byte*>(mapping);
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(start));
  const int64_t head = RoundUp(address, kHugePageBytes) - address;
  const int64_t tail = kHugePageBytes - head;
  if (head > 0) GANTRY_CHECK_EQ(munmap(start, static_cast<size_t>(head)), 0);
  if (tail > 0) {
    GANTRY_CHECK_EQ(munmap(start + head + bytes.count(), static_cast<size_t>(tail)), 0);
  }
  return AddressRange(start + head, bytes.count());
}

AddressRange::AddressRange(AddressRange&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

AddressRange& AddressRange::operator=(AddressRange&& other) noexcept {
  AddressRange taken(std::move(other));
  std::swap(base_, taken.base_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

AddressRange::~AddressRange() {
  if (base_ == nullptr) return;
  GANTRY_CHECK_EQ(munmap(base_, static_cast<size_t>(bytes_)), 0) << std::strerror(errno);
}

MoveMethod ProbeMoveMethod() {
  const int64_t page = sysconf(_SC_PAGESIZE);
  auto from = AddressRange::Reserve(Bytes(page), AddressRange::Access::kReadWrite);
  auto to = AddressRange::Reserve(Bytes(page), AddressRange::Access::kNone);
  if (!from.ok() || !to.ok()) return MoveMethod::kRefillSource;
  constexpr std::byte kMark{0x5a};
  *from->base() = kMark;
  const absl::Status moved =
      MoveKeepingSource({.from = from->base(), .to = to->base(), .bytes = page});
  return moved.ok() && *to->base() == kMark ? MoveMethod::kKeepSource : MoveMethod::kRefillSource;
}

absl::Status MovePages(MoveMethod method, const PageMove& move) {
  GANTRY_CHECK_GT(move.bytes, 0);
  return method == MoveMethod::kKeepSource ? MoveKeepingSource(move) : MoveRefillingSource(move);
}

}  // namespace gantry
