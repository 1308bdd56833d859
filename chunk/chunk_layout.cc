#include "chunk/chunk_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

absl::StatusOr<int64_t> CountElements(const TensorSpec& tensor) {
  int64_t elements = 1;
  for (const int64_t extent : tensor.shape) {
    if (extent < 1) {
      return InvalidArgument("tensor '", tensor.name, "' has an extent of ", extent,
                             "; every extent must be at least 1");
    }
    if (__builtin_mul_overflow(elements, extent, &elements) || elements > kModelElementsMax) {
      return InvalidArgument("tensor '", tensor.name, "' has more than ", kModelElementsMax,
                             " elements");
    }
  }
  return elements;
}

struct PlacedTensors {
  std::vector<GroupExtent> groups;
  std::vector<TensorPlacement> placements;  // by tensor
};

// The index of the tensor's group, which is made when it is the first of its kind.
int64_t GroupOf(const TensorSpec& tensor, std::vector<GroupExtent>& groups) {
  const auto same = std::ranges::find_if(groups, [&](const GroupExtent& group) {
    return group.dtype == tensor.dtype && group.trainability == tensor.trainability &&
           group.data_parallel_degree == tensor.data_parallel_degree;
  });
  const int64_t index = same - groups.begin();
  if (same == groups.end()) {
    groups.push_back({.dtype = tensor.dtype,
                      .trainability = tensor.trainability,
                      .data_parallel_degree = tensor.data_parallel_degree,
                      .elements = 0,
                      .used_elements = 0,
                      .largest_tensor_elements = 0});
  }
  return index;
}

absl::StatusOr<PlacedTensors> PlaceTensors(std::span<const TensorSpec> tensors) {
  PlacedTensors placed;
  placed.placements.reserve(tensors.size());
  int64_t model_elements = 0;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.data_parallel_degree < 1 || tensor.data_parallel_degree > kChunkCountMax) {
      return InvalidArgument("tensor '", tensor.name, "' has a data-parallel degree of ",
                             tensor.data_parallel_degree, "; it must be in [1, ", kChunkCountMax,
                             "]");
    }
    GANTRY_ASSIGN_OR_RETURN(const int64_t elements, CountElements(tensor));
    const int64_t group_index = GroupOf(tensor, placed.groups);
    GroupExtent& group = placed.groups[static_cast<size_t>(group_index)];
    const int64_t offset = RoundUp(group.elements, kTensorAlignmentElements);
    model_elements += offset + elements - group.elements;
    if (model_elements > kModelElementsMax) {
      return InvalidArgument("tensor '", tensor.name, "' brings the model to ", model_elements,
                             " elements; the most is ", kModelElementsMax);
    }
    group.elements = offset + elements;
    group.used_elements += elements;
    group.largest_tensor_elements = std::max(group.largest_tensor_elements, elements);
    placed.placements.push_back({.group = group_index, .offset = offset, .elements = elements});
  }
  return placed;
}

absl::Status CheckOptions(const ChunkLayout::Options& options) {
  if (options.chunk_elements < 1 || options.chunk_elements > kChunkElementsMax ||
      options.chunk_elements % kChunkGranularityElements != 0) {
    return InvalidArgument("a chunk of ", options.chunk_elements,
                           " elements: it must be a positive multiple of ",
                           kChunkGranularityElements, " and at most ", kChunkElementsMax);
  }
  return CheckSupported(options.optimizer, options.state_format);
}

}  // namespace

int64_t ElementBytes(StateKind kind, DType dtype, Trainability trainability,
                     const StateOptions& options) {
  constexpr int64_t kFull = 4;
  constexpr int64_t kHalf = 2;
  if (kind == StateKind::kParameter) return SizeOf(dtype);
  if (trainability == Trainability::kFrozen) return 0;
  const OptimizerStates states = StatesOf(options.optimizer);
  const bool eight_bit = options.format == StateFormat::kEightBit;
  switch (kind) {
    case StateKind::kGradient:
      return dtype == DType::kF32 ? kFull : SizeOf(options.gradient_dtype);
    case StateKind::kMaster:
      if (dtype == DType::kF32) return 0;
      return options.format == StateFormat::kSplitMaster && dtype == DType::kBF16 ? kHalf : kFull;
    case StateKind::kMomentum:
      if (!states.momentum) return 0;
      return eight_bit ? kHalf : kFull;
    case StateKind::kVariance:
      return states.variance && !eight_bit ? kFull : 0;
    case StateKind::kParameter:
      break;
  }
  return SizeOf(dtype);
}

absl::StatusOr<std::vector<GroupExtent>> MeasureGroups(std::span<const TensorSpec> tensors) {
  GANTRY_ASSIGN_OR_RETURN(PlacedTensors placed, PlaceTensors(tensors));
  return std::move(placed.groups);
}

absl::StatusOr<ChunkLayout> ChunkLayout::Create(
    std::vector<TensorSpec> tensors,
    const std::vector<std::pair<std::string, std::string>>& aliases, Options options) {
  GANTRY_RETURN_IF_ERROR(CheckOptions(options));
  GANTRY_ASSIGN_OR_RETURN(PlacedTensors placed, PlaceTensors(tensors));
  ChunkLayout layout;
  layout.options_ = options;
  layout.tensors_ = std::move(tensors);
  layout.placements_ = std::move(placed.placements);
  GANTRY_RETURN_IF_ERROR(layout.AddNames(aliases));
  GANTRY_RETURN_IF_ERROR(layout.AddChunks(placed.groups));
  layout.CutTensors();
  return layout;
}

absl::Status ChunkLayout::AddNames(
    const std::vector<std::pair<std::string, std::string>>& aliases) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const std::string& name = tensors_[i].name;
    if (name.empty()) return InvalidArgument("tensor ", i, " has an empty name");
    if (!by_name_.try_emplace(name, static_cast<int64_t>(i)).second) {
      return InvalidArgument("two tensors are named '", name, "'");
    }
  }
  for (const auto& [alias, target] : aliases) {
    if (alias.empty()) return InvalidArgument("an alias of '", target, "' has an empty name");
    const absl::StatusOr<TensorId> tensor = Find(target);
    if (!tensor.ok()) {
      return InvalidArgument("alias '", alias, "': ", FromAbsl(tensor.status().message()));
    }
    if (!by_name_.try_emplace(alias, tensor->value()).second) {
      return InvalidArgument("alias '", alias, "' of '", target, "' is already a name");
    }
  }
  return absl::OkStatus();
}

absl::Status ChunkLayout::AddChunks(std::span<const GroupExtent> extents) {
  int64_t chunk_total = 0;
  for (const GroupExtent& extent : extents) {
    const int64_t count =
        RoundUp(CeilDiv(extent.elements, options_.chunk_elements), extent.data_parallel_degree);
    const ChunkId first_chunk(chunk_total);
    chunk_total += count;
    if (chunk_total > kChunkCountMax) {
      return InvalidArgument("more than ", kChunkCountMax, " chunks of ", options_.chunk_elements,
                             " elements; choose larger chunks or a smaller data-parallel degree");
    }
    group_of_chunk_.resize(static_cast<size_t>(chunk_total), static_cast<int32_t>(groups_.size()));
    groups_.push_back({.dtype = extent.dtype,
                       .trainability = extent.trainability,
                       .data_parallel_degree = extent.data_parallel_degree,
                       .first_chunk = first_chunk,
                       .chunk_count = count,
                       .used_elements = extent.used_elements});
  }
  return absl::OkStatus();
}

void ChunkLayout::CutTensors() {
  // Chunks are numbered group by group, tensors of a group lie in registration order: walking the
  // tensors in that order meets the chunks in ascending order.
  std::vector<int64_t> order(tensors_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](int64_t tensor) {
    return std::pair(placements_[static_cast<size_t>(tensor)].group, tensor);
  });
  const auto open_chunks_up_to = [&](int64_t chunk) {
    first_slice_.resize(std::max(first_slice_.size(), static_cast<size_t>(chunk) + 1),
                        static_cast<int64_t>(slices_.size()));
  };
  first_slice_.reserve(group_of_chunk_.size() + 1);
  for (const int64_t tensor : order) {
    const TensorPlacement& place = placements_[static_cast<size_t>(tensor)];
    const int64_t first_chunk = groups_[static_cast<size_t>(place.group)].first_chunk.value();
    for (int64_t done = 0; done < place.elements;) {
      const int64_t position = place.offset + done;
      const int64_t chunk_begin = position % options_.chunk_elements;
      const int64_t elements =
          std::min(options_.chunk_elements - chunk_begin, place.elements - done);
      open_chunks_up_to(first_chunk + position / options_.chunk_elements);
      slices_.push_back({.tensor = TensorId(tensor),
                         .chunk_begin = chunk_begin,
                         .tensor_begin = done,
                         .elements = elements});
      done += elements;
    }
  }
  open_chunks_up_to(chunk_count());
}

absl::StatusOr<TensorId> ChunkLayout::Find(std::string_view name) const {
  const auto found = by_name_.find(ToAbsl(name));
  if (found != by_name_.end()) return TensorId(found->second);
  // Sorted, so that the answer does not depend on the order of a hash table.
  std::vector<std::string> names;
  names.reserve(by_name_.size());
  for (const auto& [known, tensor] : by_name_) names.push_back(known);
  std::ranges::sort(names);
  const std::string nearest = NearestName(name, names.data(), names.size());
  if (nearest.empty()) return NotFound("no tensor is named '", name, "'");
  return NotFound("no tensor is named '", name, "'; did you mean '", nearest, "'?");
}

const ChunkGroup& ChunkLayout::group_of(ChunkId chunk) const {
  GANTRY_CHECK(chunk.value() >= 0 && chunk.value() < chunk_count())
      << chunk << " of " << chunk_count();
  return groups_[static_cast<size_t>(group_of_chunk_[static_cast<size_t>(chunk.value())])];
}

int64_t ChunkLayout::index_in_group(ChunkId chunk) const {
  return chunk.value() - group_of(chunk).first_chunk.value();
}

ChunkLayout::ChunkRange ChunkLayout::ChunksOf(TensorId id) const {
  GANTRY_CHECK(id.value() >= 0 && id.value() < tensor_count()) << id << " of " << tensor_count();
  const TensorPlacement& place = placement(id);
  const int64_t first_chunk = groups_[static_cast<size_t>(place.group)].first_chunk.value();
  const int64_t last_position = place.offset + place.elements - 1;
  return {.first = ChunkId(first_chunk + place.offset / options_.chunk_elements),
          .last = ChunkId(first_chunk + last_position / options_.chunk_elements)};
}

std::span<const TensorSlice> ChunkLayout::SlicesIn(ChunkId chunk) const {
  GANTRY_CHECK(chunk.value() >= 0 && chunk.value() < chunk_count())
      << chunk << " of " << chunk_count();
  const auto index = static_cast<size_t>(chunk.value());
  const int64_t begin = first_slice_[index];
  const int64_t count = first_slice_[index + 1] - begin;
  return std::span(slices_).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
}

int64_t ChunkLayout::ElementBytesIn(const ChunkGroup& group, StateKind kind) const {
  return ElementBytes(kind, group.dtype, group.trainability,
                      {.gradient_dtype = options_.gradient_dtype,
                       .optimizer = options_.optimizer,
                       .format = options_.state_format});
}

bool ChunkLayout::HasBlock(BlockId block) const {
  return ElementBytesIn(group_of(block.chunk), block.kind) > 0;
}

int64_t ChunkLayout::element_bytes(BlockId block) const {
  const int64_t bytes = ElementBytesIn(group_of(block.chunk), block.kind);
  GANTRY_CHECK_GT(bytes, 0) << block;
  return bytes;
}

int64_t ChunkLayout::slots_of(BlockId block) const { return element_bytes(block) / 2; }

int64_t ChunkLayout::total_slots(StateKind kind) const {
  int64_t slots = 0;
  for (const ChunkGroup& group : groups_) {
    slots += group.chunk_count * ElementBytesIn(group, kind) / 2;
  }
  return slots;
}

DType ChunkLayout::dtype_of(BlockId block) const {
  GANTRY_CHECK(HasBlock(block)) << block;
  const ChunkGroup& group = group_of(block.chunk);
  if (block.kind == StateKind::kParameter) return group.dtype;
  if (block.kind == StateKind::kGradient && group.dtype != DType::kF32) {
    return options_.gradient_dtype;
  }
  GANTRY_CHECK_EQ(element_bytes(block), SizeOf(DType::kF32)) << block << " holds no floats";
  return DType::kF32;
}

bool ChunkLayout::SplitsMaster(ChunkId chunk) const {
  const ChunkGroup& group = group_of(chunk);
  return group.dtype == DType::kBF16 && group.trainability == Trainability::kTrainable &&
         options_.state_format == StateFormat::kSplitMaster;
}

bool ChunkLayout::HasEightBitMoments(ChunkId chunk) const {
  return group_of(chunk).trainability == Trainability::kTrainable &&
         options_.state_format == StateFormat::kEightBit;
}

bool ChunkLayout::HasState(StateKind kind, TensorId id) const {
  const bool trainable = tensor(id).trainability == Trainability::kTrainable;
  const OptimizerStates states = StatesOf(options_.optimizer);
  switch (kind) {
    case StateKind::kParameter:
      return true;
    case StateKind::kGradient:
      return false;
    case StateKind::kMaster:
      return trainable;
    case StateKind::kMomentum:
      return trainable && states.momentum;
    case StateKind::kVariance:
      return trainable && (states.variance || FactorsVariance(options_.optimizer));
  }
  return false;
}

int64_t ChunkLayout::StateElements(StateKind kind, TensorId id) const {
  GANTRY_CHECK(HasState(kind, id)) << Name(kind) << " of " << tensor(id).name;
  return gantry::StateElements(kind, tensor(id).shape, options_.optimizer);
}

bool ChunkLayout::UpdateReadsParameter(ChunkId chunk) const {
  const ChunkGroup& group = group_of(chunk);
  if (group.trainability == Trainability::kFrozen) return false;
  return group.dtype == DType::kF32 || SplitsMaster(chunk);
}

double ChunkLayout::padding_fraction() const {
  if (chunk_count() == 0) return 0.0;
  const double allocated =
      static_cast<double>(chunk_count()) * static_cast<double>(options_.chunk_elements);
  return 1.0 - static_cast<double>(used_elements()) / allocated;
}

int64_t ChunkLayout::used_elements() const {
  int64_t elements = 0;
  for (const ChunkGroup& group : groups_) elements += group.used_elements;
  return elements;
}

}  // namespace gantry
