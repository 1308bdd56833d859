// Which documents share a sequence: first-fit-decreasing within windows of consecutive documents.
// A pure function of the lengths.
#ifndef GANTRY_TRAINER_DATA_PACKING_H_
#define GANTRY_TRAINER_DATA_PACKING_H_

#include <cstdint>
#include <span>
#include <vector>

namespace gantry {

// Documents are looked at in groups of so many: it bounds the work of one document, and keeps the
// random order of the documents up to a group.
inline constexpr int64_t kPackingWindow = 2048;

// The sequences of one plan: sequence s holds documents order[begins[s]] .. order[begins[s+1]-1].
struct PackingPlan {
  std::vector<uint32_t> order;  // indices of `lengths`
  std::vector<int64_t> begins;  // one more than sequences
  int64_t sequences() const { return static_cast<int64_t>(begins.size()) - 1; }
};

// REQUIRES: 1 <= each length <= capacity; fewer than 2^32 of them.
PackingPlan PackDocuments(std::span<const int32_t> lengths, int64_t capacity);
// One document for each sequence.
PackingPlan OneEach(int64_t documents);

}  // namespace gantry

#endif  // GANTRY_TRAINER_DATA_PACKING_H_
