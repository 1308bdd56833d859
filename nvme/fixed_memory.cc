#include "nvme/fixed_memory.h"

#include <algorithm>
#include <functional>

#include "base/check.h"

namespace gantry {
namespace {

const std::byte* Begin(std::span<std::byte> slice) { return slice.data(); }

}  // namespace

FixedMemory::FixedMemory(std::span<const std::span<std::byte>> regions) {
  for (std::span<std::byte> region : regions) {
    while (!region.empty()) {
      const size_t size = std::min(region.size(), static_cast<size_t>(kSliceBytesMax));
      slices_.push_back(region.first(size));
      region = region.subspan(size);
    }
  }
  std::ranges::sort(slices_, std::less<>(), Begin);
  for (size_t i = 1; i < slices_.size(); ++i) {
    GANTRY_CHECK(slices_[i - 1].data() + slices_[i - 1].size() <= slices_[i].data())
        << "two regions overlap at " << slices_[i].data();
  }
}

std::optional<int> FixedMemory::Find(std::span<const std::byte> buffer) const {
  if (buffer.empty()) return std::nullopt;
  const auto after = std::ranges::upper_bound(slices_, buffer.data(), std::less<>(), Begin);
  if (after == slices_.begin()) return std::nullopt;
  const std::span<std::byte> slice = *(after - 1);
  if (buffer.data() + buffer.size() > slice.data() + slice.size()) return std::nullopt;
  return static_cast<int>(after - 1 - slices_.begin());
}

}  // namespace gantry
