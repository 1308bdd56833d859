// How large the chunks of a model should be: a pure function of its tensors and the budgets.
//
// The rule. A size is possible when the budgets hold the minimum at that size:
//   - the device: the parameters and gradients of the largest operator, and the activations;
//   - the device or the host: all blocks of one chunk, for its update;
//   - without files, device and host together: every parameter and optimizer block of this rank.
// Smaller chunks never need more, so an error at the smallest size is an error at any size.
// Candidates are multiples of 1 Mi elements (a slot is then made of 2 MiB huge pages) for models of
// at least 50 such chunks and devices of at least 24; otherwise of kChunkGranularityElements. They
// leave at least 50 chunks (300 when the model has 300 chunks of 8 MiB: a "large" model). Among the
// possible ones the best has, in this order of importance:
//   1. 24 slots on the device, or as many as there can be;
//   2. at most 3000 chunks, and slots of at least 8 MiB for a large model;
//   3. padding, in bytes over all state kinds, within 0.1 % (large model) or 1 %, or the least;
//   4. a chunk count near total / 4 Mi elements (8 MiB slots), kept between 100 and 1500.
// Simulated plans are flat between 300 and 3000 chunks, lose 2 % and more below 100 chunks, and
// lose to the cost per move when slots are small.
#ifndef GANTRY_CHUNK_CHUNK_SIZE_H_
#define GANTRY_CHUNK_CHUNK_SIZE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "chunk/chunk_layout.h"
#include "chunk/optimizer_states.h"

namespace gantry {

inline constexpr int64_t kHugePageChunkElements = int64_t{1} << 20;
inline constexpr int64_t kDeviceSlotsAim = 24;
inline constexpr int64_t kSmallModelChunkCountMin = 50;
inline constexpr int64_t kLargeModelChunkCountMin = 300;
inline constexpr int64_t kChunkCountAimMax = 3000;
inline constexpr int64_t kLargeModelChunkElements = int64_t{4} << 20;  // 8 MiB slots

enum class FileTier : uint8_t { kAbsent, kPresent };

struct ChunkSizeInput {
  std::vector<GroupExtent> groups;  // MeasureGroups of the model's tensors
  DType gradient_dtype;             // this and the next two as ChunkLayout::Options
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  StateFormat state_format = StateFormat::kF32;
  Bytes device_budget;
  Bytes host_budget;  // 0 when device and host are one memory
  FileTier files = FileTier::kAbsent;
  Bytes activation_bytes = Bytes(0);      // device bytes that activations and workspaces need
  int64_t largest_operator_elements = 0;  // when one operator uses more than the largest tensor
  // Sizes are multiples of it: a positive multiple of kChunkGranularityElements.
  int64_t granularity_elements = kChunkGranularityElements;
};

// The chunk size in elements, for ChunkLayout::Options.
// Errors: kInvalidArgument for no groups, a non-positive count or a negative budget;
// kResourceExhausted, with the bytes needed and there, when no size fits the budgets.
absl::StatusOr<int64_t> ChooseChunkElements(const ChunkSizeInput& input);

}  // namespace gantry

#endif  // GANTRY_CHUNK_CHUNK_SIZE_H_
