// Adafactor's factors of all tensors, which lie beside the chunks, and the order in which the
// gradients of a step go through its passes: each chunk's gradient is observed, measured and then
// used up by the update. What must be complete before:
//
//   observe   the chunk before it in its group (sums of columns have an order)
//   measure   observing, for all tensors with elements in the chunk
//   update    measuring, for all tensors with elements in the chunk
//
// So a pass needs one chunk's gradient at a time, whatever the size of a tensor.
//
// A chunk is observed once a step, in turn, and cannot be observed for the next step before its
// update: so the turn goes round from step to step. After steps that were skipped it starts again.
//
// All calls are made under the engine's mutex, but what of() returns is used by jobs without it.
// They run one at a time, and a tensor's factors are accessed otherwise only while no update of
// that tensor is to come.
#ifndef GANTRY_GEMINI_FACTOR_TABLE_H_
#define GANTRY_GEMINI_FACTOR_TABLE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "chunk/chunk_layout.h"
#include "offload/adafactor.h"

namespace gantry {

class FactorTable {
 public:
  // `layout` outlives the table. With another optimizer than adafactor nothing is held.
  explicit FactorTable(const ChunkLayout& layout);

  bool active() const { return !factors_.empty(); }
  // REQUIRES: active, a trainable tensor.
  AdafactorFactors& of(TensorId tensor);

  // No gradient of an earlier step is left.
  void Restart();
  // REQUIRES of all below but MayUpdate: active, a trainable chunk.
  bool MayObserve(ChunkId chunk) const;
  bool MayMeasure(ChunkId chunk) const;
  bool MayUpdate(ChunkId chunk) const;  // true with another optimizer
  // The chunks whose turn to be observed comes next: at most `count` of each group.
  std::vector<ChunkId> NextToObserve(int64_t count) const;
  void OnObserved(ChunkId chunk);
  void OnMeasured(ChunkId chunk);
  // The chunk's gradient is gone, used up or dropped. Does nothing with another optimizer.
  void OnGradientEnded(ChunkId chunk);

  // Of all factors, with their sums. It does not change.
  Bytes bytes() const { return bytes_; }

 private:
  enum class Passed : uint8_t { kNothing, kObserved, kMeasured };
  // Of one group: whose turn it is to be observed, between its first and last chunk with elements.
  struct Turn {
    int64_t first;
    int64_t last;
    int64_t next;
  };

  static size_t Index(ChunkId chunk) { return static_cast<size_t>(chunk.value()); }
  static size_t Index(TensorId tensor) { return static_cast<size_t>(tensor.value()); }
  Turn& turn_of(ChunkId chunk) { return turns_[group_[Index(chunk)]]; }
  const Turn& turn_of(ChunkId chunk) const { return turns_[group_[Index(chunk)]]; }

  const ChunkLayout& layout_;
  std::vector<std::optional<AdafactorFactors>> factors_;  // by tensor; frozen ones have none
  std::vector<int64_t> unmeasured_;                       // by tensor: chunks, once all observed
  std::vector<Passed> passed_;                            // by chunk
  std::vector<size_t> group_;                             // by chunk, into turns_
  std::vector<Turn> turns_;
  Bytes bytes_ = Bytes(0);
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_FACTOR_TABLE_H_
