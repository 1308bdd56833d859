// The eight-bit moments of all chunks as an engine needs them beside the codes, which lie in the
// chunks' momentum blocks: the scales, and what was written to blocks between steps.
//
// A quantization block is encoded as a whole. So that the order of writes makes no difference, what
// is written is kept as it is until each element of the block that belongs to a tensor has been
// written, or until Settle; then it is encoded once. A checkpoint that is loaded tensor by tensor
// keeps a block or two at a time.
//
// All calls are made under the engine's mutex. Only the pointer that scales() gave is used outside
// of it, by the one update of its chunk. `codes` is the chunk's momentum block in memory.
#ifndef GANTRY_GEMINI_EIGHT_BIT_MOMENTS_H_
#define GANTRY_GEMINI_EIGHT_BIT_MOMENTS_H_

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "chunk/block.h"
#include "chunk/chunk_layout.h"
#include "chunk/optimizer_states.h"
#include "offload/eight_bit_states.h"

namespace gantry {

static_assert(kChunkGranularityElements % (2 * kQuantizationBlockElements) == 0);

class EightBitMoments {
 public:
  // `layout` outlives the moments. Without eight-bit moments nothing is held.
  explicit EightBitMoments(const ChunkLayout& layout);

  // Of the chunk's quantization blocks, in order. REQUIRES: layout.HasEightBitMoments(chunk).
  EightBitScales* scales(ChunkId chunk) { return scales_[Index(chunk)].data(); }

  // `moment` is kMomentum or kVariance; elements [element, element + values.size()) of the chunk.
  void Read(BlockId moment, int64_t element, const uint8_t* codes, std::span<float> values) const;
  // REQUIRES: the elements belong to tensors.
  void Write(BlockId moment, int64_t element, std::span<const float> values, uint8_t* codes);
  // Encodes what is kept of the chunk.
  void Settle(ChunkId chunk, uint8_t* codes);

  // Whether something is kept of the chunk.
  bool HasWritten(ChunkId chunk) const { return !written_[Index(chunk)].empty(); }

  // The scales' part in an update that may be taken back: what SetScalesAside copied is dropped or
  // put back. The latter two do nothing for other chunks. REQUIRES: nothing is kept.
  void SetScalesAside(ChunkId chunk);
  void KeepScales(ChunkId chunk) { aside_[Index(chunk)] = {}; }
  void TakeScalesBack(ChunkId chunk);

  // Of all scales and of what is kept.
  Bytes bytes() const;

 private:
  using BlockFloats = std::array<float, kQuantizationBlockElements>;
  struct Written {
    BlockFloats values;
    std::bitset<kQuantizationBlockElements> elements;
  };
  struct Key {
    int64_t block;  // in the chunk
    StateKind moment;

    auto operator<=>(const Key&) const = default;
  };

  static size_t Index(ChunkId chunk) { return static_cast<size_t>(chunk.value()); }
  bool has_variance() const { return StatesOf(layout_.optimizer()).variance; }
  void Decode(ChunkId chunk, const Key& key, const uint8_t* codes, BlockFloats& values) const;
  void Encode(ChunkId chunk, const Key& key, const BlockFloats& values, uint8_t* codes);
  int64_t TensorElements(ChunkId chunk, int64_t block) const;

  const ChunkLayout& layout_;
  std::vector<std::vector<EightBitScales>> scales_;  // by chunk and block
  std::vector<std::vector<EightBitScales>> aside_;   // by chunk; empty: none
  std::vector<std::map<Key, Written>> written_;      // by chunk
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_EIGHT_BIT_MOMENTS_H_
