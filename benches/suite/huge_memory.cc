#include "benches/suite/huge_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr int64_t kPageBytes = int64_t{2} << 20;

}  // namespace

absl::StatusOr<HugeMemory> HugeMemory::Create(Bytes bytes) {
  GANTRY_CHECK(bytes > Bytes::Zero()) << bytes;
  // One page more, so that the part that is used begins at a page.
  const auto size = static_cast<size_t>(RoundUp(bytes.count(), kPageBytes));
  const size_t mapped = size + static_cast<size_t>(kPageBytes);
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    if (errno == ENOMEM) return ResourceExhausted("no memory for ", bytes);
    return ErrnoStatus(errno, StrCat("mmap of ", bytes));
  }
  auto* const begin = static_cast<std::byte*>(base);
  const auto address = reinterpret_cast<uintptr_t>(base);
  const size_t skipped = (static_cast<size_t>(kPageBytes) - address % kPageBytes) % kPageBytes;
  if (skipped > 0) munmap(begin, skipped);
  const size_t behind = mapped - skipped - size;
  if (behind > 0) munmap(begin + skipped + size, behind);
  // Only advice: without huge pages figures are lower, not wrong.
  static_cast<void>(madvise(begin + skipped, size, MADV_HUGEPAGE));
  std::memset(begin + skipped, 1, size);
  return HugeMemory({begin + skipped, size});
}

HugeMemory::~HugeMemory() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

}  // namespace gantry
