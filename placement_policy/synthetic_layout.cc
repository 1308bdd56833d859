#include "placement_policy/synthetic_layout.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/strings.h"
#include "placement_policy/model_shape.h"

namespace gantry {
namespace {

constexpr int64_t kMebi = int64_t{1} << 20;
constexpr int64_t kChunksAimMin = 300;
constexpr int64_t kChunksAimMax = 3000;
constexpr int64_t kSmallModelChunks = 100;
constexpr int64_t kGoodChunkElements = 4 * kMebi;    // 8 MiB slots
constexpr int64_t kLargeChunkElements = 64 * kMebi;  // 128 MiB slots
constexpr int64_t kLoraRankMax = 65536;

struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

// Where each operator's tensors lie, and its adapters.
struct Ranges {
  std::vector<ElementRange> base;
  std::vector<ElementRange> adapters;
  std::vector<int64_t> adapter_elements;
  int64_t base_end = 0;
  int64_t adapters_end = 0;
};

bool HasAdapters(const ModelOperator& op, const TensorShape& tensor) {
  return op.layer >= 0 && op.kind != OperatorKind::kRouter && tensor.rows > 1;
}

Ranges PlaceTensors(const ModelStructure& structure, int64_t rank) {
  Ranges ranges;
  std::vector<ElementRange> tensors;
  tensors.reserve(structure.tensors.size());
  for (const TensorShape& tensor : structure.tensors) {
    const int64_t begin = RoundUp(ranges.base_end, kSyntheticTensorAlignment);
    ranges.base_end = begin + tensor.elements();
    tensors.push_back({begin, ranges.base_end});
  }
  for (const ModelOperator& op : structure.operators) {
    ElementRange base;
    ElementRange adapters = {ranges.adapters_end, ranges.adapters_end};
    int64_t elements = 0;
    if (op.tensor_count > 0) {
      base = {tensors[static_cast<size_t>(op.first_tensor)].begin,
              tensors[static_cast<size_t>(op.first_tensor + op.tensor_count - 1)].end};
    }
    for (int64_t i = 0; rank > 0 && i < op.tensor_count; ++i) {
      const TensorShape& tensor = structure.tensors[static_cast<size_t>(op.first_tensor + i)];
      if (!HasAdapters(op, tensor)) continue;
      for (const int64_t size : {rank * tensor.rows, rank * tensor.cols}) {
        adapters.end = RoundUp(adapters.end, kSyntheticTensorAlignment) + size;
        elements += size;
      }
    }
    ranges.base.push_back(base);
    ranges.adapters.push_back(adapters);
    ranges.adapter_elements.push_back(elements);
    ranges.adapters_end = adapters.end;
  }
  return ranges;
}

// Part `index` of `count` equal ones.
ElementRange PartOf(const ElementRange& range, int64_t index, int64_t count) {
  // count is small against any range that has more than one part.
  const int64_t size = range.size() / count;
  const int64_t rest = range.size() % count;
  const auto begin_of = [&](int64_t i) { return range.begin + i * size + std::min(i, rest); };
  return {begin_of(index), begin_of(index + 1)};
}

ChunkSpan ChunksOf(const ElementRange& range, int64_t first_chunk, int64_t chunk_elements) {
  if (range.size() == 0) return {};
  return {.first = first_chunk + range.begin / chunk_elements,
          .last = first_chunk + (range.end - 1) / chunk_elements};
}

absl::StatusOr<int64_t> ChunkElements(int64_t wanted, int64_t elements) {
  if (wanted == 0) return ChooseSyntheticChunkElements(elements);
  if (wanted < 0 || wanted > kSyntheticChunkElementsMax ||
      wanted % kSyntheticChunkGranularity != 0) {
    return InvalidArgument("synthetic trace: chunk_elements is ", wanted,
                           "; it must be 0 or a multiple of ", kSyntheticChunkGranularity,
                           " up to ", kSyntheticChunkElementsMax);
  }
  if (elements / wanted >= kSyntheticChunksMax) {
    return InvalidArgument("synthetic trace: chunk_elements is ", wanted, ", so that ", elements,
                           " elements need more than ", kSyntheticChunksMax, " chunks");
  }
  return wanted;
}

}  // namespace

int64_t ChooseSyntheticChunkElements(int64_t elements) {
  GANTRY_CHECK_GE(elements, 1);
  const auto chunks = [elements](int64_t size) { return CeilDiv(elements, size); };
  int64_t size = kSyntheticChunkGranularity;
  const int64_t chunks_min =
      chunks(kGoodChunkElements) >= kChunksAimMin ? kChunksAimMin : kSmallModelChunks;
  while (chunks(2 * size) >= chunks_min &&
         (2 * size <= kLargeChunkElements || chunks(size) > kChunksAimMax)) {
    size *= 2;
  }
  return size;
}

absl::StatusOr<SyntheticLayout> SyntheticLayout::Create(const ModelStructure& structure,
                                                        const SyntheticLayoutOptions& options) {
  if (options.lora_rank < 0 || options.lora_rank > kLoraRankMax) {
    return InvalidArgument("synthetic trace: lora_rank is ", options.lora_rank,
                           "; it must be in [0, ", kLoraRankMax, "]");
  }
  const Ranges ranges = PlaceTensors(structure, options.lora_rank);
  if (ranges.adapters_end > kModelParametersMax) {
    return InvalidArgument("synthetic trace: lora_rank is ", options.lora_rank,
                           ", so that the adapters have more than ", kModelParametersMax,
                           " parameters");
  }
  const absl::StatusOr<int64_t> chunk_elements =
      ChunkElements(options.chunk_elements, ranges.base_end + ranges.adapters_end);
  if (!chunk_elements.ok()) return chunk_elements.status();

  SyntheticLayout layout;
  layout.chunk_elements_ = *chunk_elements;
  layout.base_chunks_ = CeilDiv(ranges.base_end, *chunk_elements);
  layout.adapter_chunks_ = CeilDiv(ranges.adapters_end, *chunk_elements);
  layout.first_tile_.push_back(0);
  for (size_t op = 0; op < structure.operators.size(); ++op) {
    const ElementRange& base = ranges.base[op];
    const int64_t largest = std::max(base.size(), ranges.adapters[op].size());
    const int64_t count = std::max<int64_t>(1, CeilDiv(largest, 2 * *chunk_elements));
    for (int64_t i = 0; i < count; ++i) {
      const ElementRange part = PartOf(base, i, count);
      const double share =
          base.size() == 0 ? 1.0
                           : static_cast<double>(part.size()) / static_cast<double>(base.size());
      layout.tiles_.push_back({.share = share,
                               .chunks = ChunksOf(part, 0, *chunk_elements),
                               .adapter_chunks = ChunksOf(PartOf(ranges.adapters[op], i, count),
                                                          layout.base_chunks_, *chunk_elements)});
    }
    layout.first_tile_.push_back(static_cast<int64_t>(layout.tiles_.size()));
  }
  layout.adapter_elements_ = ranges.adapter_elements;
  return layout;
}

}  // namespace gantry
