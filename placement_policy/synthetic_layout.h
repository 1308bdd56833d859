// Where the tensors of a model that nobody has loaded would lie: the rules of chunk/chunk_layout.h
// (tensors one behind the other in forward order, each start aligned, cut into equal chunks that
// tensors straddle), and the operators cut into tiles. A tile is a range of an operator's tensors
// of at most two chunks' elements, so that it lies in one to three chunks (and as many of
// adapters): this bounds the memory that one moment of a step needs, however large the matrices.
#ifndef GANTRY_PLACEMENT_POLICY_SYNTHETIC_LAYOUT_H_
#define GANTRY_PLACEMENT_POLICY_SYNTHETIC_LAYOUT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "placement_policy/model_structure.h"

namespace gantry {

// A multiple that chunk sizes have, and the alignment of tensors, as in chunk/chunk_layout.h.
inline constexpr int64_t kSyntheticChunkGranularity = 32768;
inline constexpr int64_t kSyntheticTensorAlignment = 64;
inline constexpr int64_t kSyntheticChunkElementsMax = int64_t{1} << 40;
inline constexpr int64_t kSyntheticChunksMax = int64_t{1} << 20;

// The chunk size that research on simulated plans found good for a model of so many elements: the
// largest power of two that leaves 300 chunks, at most 64 Mi elements unless there would then be
// more than 3,000 chunks. Models too small for 300 chunks of 4 Mi elements (8 MiB) take the largest
// that leaves 100. Never below kSyntheticChunkGranularity. REQUIRES: elements >= 1.
int64_t ChooseSyntheticChunkElements(int64_t elements);

// Chunks `first` to `last`, both included; none when last < first.
struct ChunkSpan {
  int64_t first = 0;
  int64_t last = -1;
};

struct OperatorTile {
  double share;  // of the operator, 1 in all
  ChunkSpan chunks;
  ChunkSpan adapter_chunks;  // LoRA
};

struct SyntheticLayoutOptions {
  int64_t chunk_elements = 0;  // 0: chosen from the number of elements
  int64_t lora_rank = 0;       // 0: no adapters
};

class SyntheticLayout {
 public:
  // Adapters are on every matrix of the layers but the routers: [rank, in] and [out, rank]. They
  // have chunks of their own, behind the model's.
  // Errors: kInvalidArgument for a chunk size that is no multiple of the granularity, too large or
  // too small, or a rank outside [0, 65536]. REQUIRES: a structure of StructureOf.
  static absl::StatusOr<SyntheticLayout> Create(const ModelStructure& structure,
                                                const SyntheticLayoutOptions& options);

  int64_t chunk_elements() const { return chunk_elements_; }
  int64_t chunk_count() const { return base_chunks_ + adapter_chunks_; }
  bool IsAdapter(int64_t chunk) const { return chunk >= base_chunks_; }
  // In order; one that lies in no chunk for an operator without tensors.
  std::span<const OperatorTile> TilesOf(int64_t op) const {
    const auto first = static_cast<size_t>(first_tile_[static_cast<size_t>(op)]);
    const auto end = static_cast<size_t>(first_tile_[static_cast<size_t>(op) + 1]);
    return std::span(tiles_).subspan(first, end - first);
  }
  // Elements of the adapters of an operator.
  int64_t AdapterElementsOf(int64_t op) const { return adapter_elements_[static_cast<size_t>(op)]; }

 private:
  SyntheticLayout() = default;

  int64_t chunk_elements_ = 0;
  int64_t base_chunks_ = 0;
  int64_t adapter_chunks_ = 0;
  std::vector<OperatorTile> tiles_;
  std::vector<int64_t> first_tile_;        // operator -> index into tiles_, one past the end last
  std::vector<int64_t> adapter_elements_;  // per operator
};

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_SYNTHETIC_LAYOUT_H_
