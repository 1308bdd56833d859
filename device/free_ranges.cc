#include "device/free_ranges.h"

#include <algorithm>
#include <iterator>

#include "base/bytes.h"
#include "base/check.h"

namespace gantry {

FreeRanges::FreeRanges(int64_t bytes) {
  if (bytes > 0) ranges_.emplace(0, bytes);
}

std::optional<int64_t> FreeRanges::Take(int64_t bytes) {
  GANTRY_CHECK_GT(bytes, 0) << "bytes to take";
  for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
    const auto [offset, free_bytes] = *range;
    if (free_bytes < bytes) continue;
    // Ranges are multiples of the alignment, so what fits also fits rounded up.
    const int64_t taken = RoundUp(bytes, kAlignment);
    auto next = ranges_.erase(range);
    if (free_bytes > taken) ranges_.emplace_hint(next, offset + taken, free_bytes - taken);
    return offset;
  }
  return std::nullopt;
}

void FreeRanges::Return(int64_t offset, int64_t bytes) {
  int64_t end = offset + RoundUp(bytes, kAlignment);
  auto next = ranges_.lower_bound(offset);
  if (next != ranges_.end() && next->first == end) {
    end += next->second;
    next = ranges_.erase(next);
  }
  if (next != ranges_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second = end - previous->first;
      return;
    }
  }
  ranges_.emplace_hint(next, offset, end - offset);
}

int64_t FreeRanges::largest() const {
  int64_t largest = 0;
  for (const auto& [offset, bytes] : ranges_) largest = std::max(largest, bytes);
  return largest;
}

}  // namespace gantry
