#include "gemini/factor_table.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "chunk/optimizer_states.h"

namespace gantry {

FactorTable::FactorTable(const ChunkLayout& layout) : layout_(layout) {
  if (!FactorsVariance(layout.optimizer())) return;
  factors_.resize(static_cast<size_t>(layout.tensor_count()));
  unmeasured_.assign(factors_.size(), 0);
  for (int64_t t = 0; t < layout.tensor_count(); ++t) {
    const TensorId tensor(t);
    if (layout.tensor(tensor).trainability == Trainability::kFrozen) continue;
    std::optional<AdafactorFactors>& factors = factors_[Index(tensor)];
    factors.emplace(layout.tensor(tensor).shape, layout.placement(tensor).offset);
    bytes_ += factors->bytes();
  }
  passed_.assign(static_cast<size_t>(layout.chunk_count()), Passed::kNothing);
  group_.assign(passed_.size(), 0);
  for (const ChunkGroup& group : layout.groups()) {
    if (group.trainability == Trainability::kFrozen) continue;
    const int64_t first = group.first_chunk.value();
    int64_t last = first;
    for (int64_t c = first; c < first + group.chunk_count; ++c) {
      group_[static_cast<size_t>(c)] = turns_.size();
      if (!layout.SlicesIn(ChunkId(c)).empty()) last = c;
    }
    turns_.push_back({.first = first, .last = last, .next = first});
  }
}

AdafactorFactors& FactorTable::of(TensorId tensor) {
  std::optional<AdafactorFactors>& factors = factors_[Index(tensor)];
  GANTRY_CHECK(factors.has_value()) << tensor;
  return *factors;
}

void FactorTable::Restart() {
  for (const Passed passed : passed_) GANTRY_CHECK(passed == Passed::kNothing);
  for (Turn& turn : turns_) turn.next = turn.first;
  std::ranges::fill(unmeasured_, 0);  // of a step that was skipped
}

bool FactorTable::MayObserve(ChunkId chunk) const {
  return passed_[Index(chunk)] == Passed::kNothing && turn_of(chunk).next == chunk.value();
}

bool FactorTable::MayMeasure(ChunkId chunk) const {
  if (passed_[Index(chunk)] != Passed::kObserved) return false;
  // The tensors before the last one end in this chunk, which has been observed. What counts of the
  // last one is of this step: this chunk was not updated in the one before until none was left.
  return unmeasured_[Index(layout_.SlicesIn(chunk).back().tensor)] > 0;
}

bool FactorTable::MayUpdate(ChunkId chunk) const {
  if (!active()) return true;
  if (passed_[Index(chunk)] != Passed::kMeasured) return false;
  // The tensors between the first and the last lie in this chunk alone.
  const std::span<const TensorSlice> slices = layout_.SlicesIn(chunk);
  return unmeasured_[Index(slices.front().tensor)] == 0 &&
         unmeasured_[Index(slices.back().tensor)] == 0;
}

std::vector<ChunkId> FactorTable::NextToObserve(int64_t count) const {
  std::vector<ChunkId> chunks;
  for (const Turn& turn : turns_) {
    const int64_t end = std::min(turn.next + count, turn.last + 1);
    for (int64_t c = turn.next; c < end; ++c) chunks.emplace_back(c);
  }
  return chunks;
}

void FactorTable::OnObserved(ChunkId chunk) {
  GANTRY_CHECK(MayObserve(chunk)) << chunk;
  passed_[Index(chunk)] = Passed::kObserved;
  Turn& turn = turn_of(chunk);
  turn.next = turn.next == turn.last ? turn.first : turn.next + 1;
  for (const TensorSlice& slice : layout_.SlicesIn(chunk)) {
    const auto [first, last] = layout_.ChunksOf(slice.tensor);
    if (last == chunk) unmeasured_[Index(slice.tensor)] = last.value() - first.value() + 1;
  }
}

void FactorTable::OnMeasured(ChunkId chunk) {
  GANTRY_CHECK(MayMeasure(chunk)) << chunk;
  passed_[Index(chunk)] = Passed::kMeasured;
  for (const TensorSlice& slice : layout_.SlicesIn(chunk)) --unmeasured_[Index(slice.tensor)];
}

void FactorTable::OnGradientEnded(ChunkId chunk) {
  if (active()) passed_[Index(chunk)] = Passed::kNothing;
}

}  // namespace gantry
