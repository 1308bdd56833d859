// Where every tensor lies: a pure function from tensors to element ranges.
//
// Tensors of one group (same dtype, trainability and data-parallel degree) lie one behind the other
// in registration order, each start aligned to 64 elements, in one contiguous space that is cut
// into chunks of equal size. Tensors cross chunk borders, so the only padding is alignment and the
// tail that fills a group up to a multiple of its degree. Offsets do not depend on the chunk size.
// Groups follow each other in the order of their first tensor.
//
// Each state kind of a group (parameter, gradient, master, momentum, variance) uses the same
// offsets, counted in elements. f32 parameters are their own master. Which kinds there are, and how
// many bytes an element of each takes, follows from the optimizer and the format of its states.
//
// A layout is immutable, so any thread may read it. It owns all that it returns views of.
#ifndef GANTRY_CHUNK_CHUNK_LAYOUT_H_
#define GANTRY_CHUNK_CHUNK_LAYOUT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "chunk/block.h"
#include "chunk/optimizer_states.h"

namespace gantry {

enum class Trainability { kTrainable, kFrozen };

// What decides the blocks of a chunk besides its group.
struct StateOptions {
  DType gradient_dtype;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  StateFormat format = StateFormat::kF32;
};
// Bytes an element of one kind of state takes in a group of this type: 4, 2, or 0 when the group
// has no such state. A split master is the 2-byte low half of a bf16 parameter's master; in the
// eight-bit format the momentum's 2 bytes are the codes of momentum and variance.
int64_t ElementBytes(StateKind kind, DType dtype, Trainability trainability,
                     const StateOptions& options);

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;  // every extent >= 1; empty = scalar (one element)
  DType dtype;
  Trainability trainability = Trainability::kTrainable;
  int64_t data_parallel_degree = 1;
};

inline constexpr int64_t kTensorAlignmentElements = 64;
// Chunks are multiples of this: two global-norm segments of 16384, so that a segment crosses
// neither a chunk border nor the border between the two slots of a 4-byte block.
inline constexpr int64_t kChunkGranularityElements = 32768;

// Limits that keep every count of bytes and blocks far from overflow.
inline constexpr int64_t kModelElementsMax = int64_t{1} << 58;
inline constexpr int64_t kChunkElementsMax = int64_t{1} << 40;
inline constexpr int64_t kChunkCountMax = int64_t{1} << 24;

// A group before it is cut into chunks: what chunk_size.h chooses the chunk size from.
struct GroupExtent {
  DType dtype;
  Trainability trainability;
  int64_t data_parallel_degree;
  int64_t elements;       // end of the last tensor: with alignment, without the tail
  int64_t used_elements;  // sum over tensors
  int64_t largest_tensor_elements;
};
// The groups that ChunkLayout::Create makes of these tensors, in its order. Errors: as Create.
absl::StatusOr<std::vector<GroupExtent>> MeasureGroups(std::span<const TensorSpec> tensors);

// One tensor's place.
struct TensorPlacement {
  int64_t group;
  int64_t offset;    // elements from the start of the group's space
  int64_t elements;  // product of the shape
};

// The part of a tensor that lies in one chunk; all in elements.
struct TensorSlice {
  TensorId tensor;
  int64_t chunk_begin;   // offset inside the chunk
  int64_t tensor_begin;  // offset inside the tensor
  int64_t elements;
};

struct ChunkGroup {
  DType dtype;
  Trainability trainability;
  int64_t data_parallel_degree;
  ChunkId first_chunk;    // chunks of a group are consecutive
  int64_t chunk_count;    // a multiple of data_parallel_degree
  int64_t used_elements;  // sum over tensors, without padding
};

class ChunkLayout {
 public:
  struct Options {
    int64_t chunk_elements;  // a positive multiple of kChunkGranularityElements
    DType gradient_dtype;    // f32 parameters always have f32 gradients
    OptimizerKind optimizer = OptimizerKind::kAdamW;
    StateFormat state_format = StateFormat::kF32;
  };
  // `aliases` maps further names (first) to tensors (second: a name or an earlier alias); tied
  // weights are one tensor with two names. No tensors make a layout without chunks.
  // Errors: kInvalidArgument for an empty or duplicate name, an extent below 1, more elements or
  // chunks than the limits above, a degree outside [1, kChunkCountMax], a bad chunk size, an f16
  // gradient, an alias to an unknown name, or states that CheckSupported refuses.
  static absl::StatusOr<ChunkLayout> Create(
      std::vector<TensorSpec> tensors,
      const std::vector<std::pair<std::string, std::string>>& aliases, Options options);

  int64_t chunk_elements() const { return options_.chunk_elements; }
  OptimizerKind optimizer() const { return options_.optimizer; }
  StateFormat state_format() const { return options_.state_format; }
  // One slot = chunk_elements x 2 bytes; blocks of 4-byte elements take two.
  Bytes slot_bytes() const { return Bytes(options_.chunk_elements * 2); }
  int64_t chunk_count() const { return static_cast<int64_t>(group_of_chunk_.size()); }
  int64_t tensor_count() const { return static_cast<int64_t>(tensors_.size()); }

  const TensorSpec& tensor(TensorId id) const { return tensors_[static_cast<size_t>(id.value())]; }
  const TensorPlacement& placement(TensorId id) const {
    return placements_[static_cast<size_t>(id.value())];
  }
  // By name or alias. Errors: kNotFound with the nearest name.
  absl::StatusOr<TensorId> Find(std::string_view name) const;

  std::span<const ChunkGroup> groups() const { return groups_; }
  const ChunkGroup& group_of(ChunkId chunk) const;
  // The index of the chunk inside its group's space.
  int64_t index_in_group(ChunkId chunk) const;
  // First and last (inclusive) chunk that hold elements of the tensor.
  struct ChunkRange {
    ChunkId first;
    ChunkId last;
  };
  ChunkRange ChunksOf(TensorId id) const;
  // The slices that lie in a chunk, in order of offset. Empty only for the chunks that fill a group
  // up to a multiple of its data-parallel degree.
  std::span<const TensorSlice> SlicesIn(ChunkId chunk) const;

  // Whether the chunk has blocks of this kind (frozen chunks: parameter only; f32: no master).
  bool HasBlock(BlockId block) const;
  int64_t element_bytes(BlockId block) const;  // 2 or 4. REQUIRES: HasBlock
  int64_t slots_of(BlockId block) const;       // 1 or 2. REQUIRES: HasBlock
  int64_t total_slots(StateKind kind) const;   // over all chunks
  // Element type. REQUIRES: HasBlock, and neither low halves nor 8-bit codes.
  DType dtype_of(BlockId block) const;
  // Whether the chunk's master is a bf16 parameter and a block of low halves.
  bool SplitsMaster(ChunkId chunk) const;
  // Whether the chunk's momentum block holds the 8-bit codes of its moments.
  bool HasEightBitMoments(ChunkId chunk) const;
  // Whether a tensor has this kind of state between steps, whatever blocks hold it: no gradient; a
  // trainable f32 parameter is its master too.
  bool HasState(StateKind kind, TensorId tensor) const;
  // How many values that state has: as gantry::StateElements says. REQUIRES: HasState.
  int64_t StateElements(StateKind kind, TensorId tensor) const;
  // Whether an update starts from the parameter's content: it is its own master, or a part of it.
  bool UpdateReadsParameter(ChunkId chunk) const;

  // (allocated - used) / allocated, in elements of the parameter space of all groups; 0 when empty.
  double padding_fraction() const;
  int64_t used_elements() const;

 private:
  ChunkLayout() = default;
  absl::Status AddNames(const std::vector<std::pair<std::string, std::string>>& aliases);
  absl::Status AddChunks(std::span<const GroupExtent> extents);
  void CutTensors();
  int64_t ElementBytesIn(const ChunkGroup& group, StateKind kind) const;

  Options options_{};
  std::vector<TensorSpec> tensors_;
  std::vector<TensorPlacement> placements_;
  std::vector<ChunkGroup> groups_;
  std::vector<int32_t> group_of_chunk_;
  std::vector<TensorSlice> slices_;   // all chunks' slices, concatenated
  std::vector<int64_t> first_slice_;  // chunk -> index into slices_, one past the end last
  absl::flat_hash_map<std::string, int64_t> by_name_;
};

}  // namespace gantry

#endif  // GANTRY_CHUNK_CHUNK_LAYOUT_H_
