#include "trainer/data/packing.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "base/check.h"

namespace gantry {
namespace {

struct Bin {
  int64_t free;
  std::vector<uint32_t> documents;
};

// The documents first .. first+count-1.
std::vector<Bin> PackWindow(std::span<const int32_t> lengths, size_t first, size_t count,
                            int64_t capacity) {
  std::vector<uint32_t> by_length(count);
  std::iota(by_length.begin(), by_length.end(), static_cast<uint32_t>(first));
  std::stable_sort(by_length.begin(), by_length.end(),
                   [&](uint32_t a, uint32_t b) { return lengths[a] > lengths[b]; });
  std::vector<Bin> bins;
  for (const uint32_t document : by_length) {
    const int32_t length = lengths[document];
    auto bin = std::find_if(bins.begin(), bins.end(),
                            [&](const Bin& candidate) { return candidate.free >= length; });
    if (bin == bins.end()) {
      bins.push_back({.free = capacity, .documents = {}});
      bin = bins.end() - 1;
    }
    bin->free -= length;
    bin->documents.push_back(document);
  }
  return bins;
}

}  // namespace

PackingPlan PackDocuments(std::span<const int32_t> lengths, int64_t capacity) {
  GANTRY_CHECK_LT(lengths.size(), std::numeric_limits<uint32_t>::max());
  PackingPlan plan;
  plan.order.reserve(lengths.size());
  plan.begins.push_back(0);
  for (size_t first = 0; first < lengths.size(); first += kPackingWindow) {
    const size_t count = std::min<size_t>(kPackingWindow, lengths.size() - first);
    for (size_t i = first; i < first + count; ++i) {
      GANTRY_CHECK(lengths[i] >= 1 && lengths[i] <= capacity) << lengths[i] << ", " << capacity;
    }
    for (const Bin& bin : PackWindow(lengths, first, count, capacity)) {
      plan.order.insert(plan.order.end(), bin.documents.begin(), bin.documents.end());
      plan.begins.push_back(static_cast<int64_t>(plan.order.size()));
    }
  }
  return plan;
}

PackingPlan OneEach(int64_t documents) {
  PackingPlan plan;
  plan.order.resize(static_cast<size_t>(documents));
  std::iota(plan.order.begin(), plan.order.end(), uint32_t{0});
  plan.begins.resize(static_cast<size_t>(documents) + 1);
  std::iota(plan.begins.begin(), plan.begins.end(), int64_t{0});
  return plan;
}

}  // namespace gantry
