#include "chunk/chunk_size.h"

#include <algorithm>
#include <compare>
#include <optional>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "chunk/block.h"

namespace gantry {
namespace {

constexpr double kLargeModelPaddingGoal = 0.001;
constexpr double kSmallModelPaddingGoal = 0.01;
constexpr int64_t kPreferredChunkCountMin = 100;
constexpr int64_t kPreferredChunkCountMax = 1500;

constexpr Bytes kBudgetMax(int64_t{1} << 60);  // sums stay far from overflow

// Slots per chunk of a group.
struct ChunkSlots {
  int64_t parameter;
  int64_t gradient;
  int64_t optimizer;
};

ChunkSlots SlotsPerChunk(const GroupExtent& group, const ChunkSizeInput& input) {
  const auto slots = [&](StateKind kind) {
    return ElementBytes(kind, group.dtype, group.trainability,
                        {.gradient_dtype = input.gradient_dtype,
                         .optimizer = input.optimizer,
                         .format = input.state_format}) /
           2;
  };
  return {.parameter = slots(StateKind::kParameter),
          .gradient = slots(StateKind::kGradient),
          .optimizer = slots(StateKind::kMaster) + slots(StateKind::kMomentum) +
                       slots(StateKind::kVariance)};
}

int64_t ChunkCount(const GroupExtent& group, int64_t chunk_elements) {
  return RoundUp(CeilDiv(group.elements, chunk_elements), group.data_parallel_degree);
}

int64_t ChunkCount(const ChunkSizeInput& input, int64_t chunk_elements) {
  int64_t count = 0;
  for (const GroupExtent& group : input.groups) count += ChunkCount(group, chunk_elements);
  return count;
}

int64_t TotalElements(const ChunkSizeInput& input) {
  int64_t elements = 0;
  for (const GroupExtent& group : input.groups) elements += group.elements;
  return elements;
}

bool IsLargeModel(const ChunkSizeInput& input) {
  return TotalElements(input) >= kLargeModelChunkCountMin * kLargeModelChunkElements;
}

absl::Status CheckInput(const ChunkSizeInput& input) {
  if (input.groups.empty()) return InvalidArgument("no tensors to choose a chunk size for");
  GANTRY_RETURN_IF_ERROR(CheckSupported(input.optimizer, input.state_format));
  int64_t total_elements = 0;
  for (const GroupExtent& group : input.groups) {
    if (group.elements < 1 || group.elements > kModelElementsMax - total_elements) {
      return InvalidArgument("a group of ", group.elements, " elements, ", total_elements,
                             " before it: a group has at least 1, a model at most ",
                             kModelElementsMax);
    }
    total_elements += group.elements;
    if (group.used_elements < 1 || group.used_elements > group.elements ||
        group.largest_tensor_elements < 1 || group.largest_tensor_elements > group.used_elements) {
      return InvalidArgument("a group of ", group.elements, " elements, ", group.used_elements,
                             " of them used, with a largest tensor of ",
                             group.largest_tensor_elements);
    }
    if (group.data_parallel_degree < 1 || group.data_parallel_degree > kChunkCountMax) {
      return InvalidArgument("a data-parallel degree of ", group.data_parallel_degree);
    }
  }
  for (const Bytes budget : {input.device_budget, input.host_budget, input.activation_bytes}) {
    if (budget < Bytes(0) || budget > kBudgetMax) {
      return InvalidArgument("a budget of ", budget.count(), " bytes outside [0, ",
                             kBudgetMax.count(), "]");
    }
  }
  if (input.granularity_elements <= 0 ||
      input.granularity_elements % kChunkGranularityElements != 0) {
    return InvalidArgument("chunks of multiples of ", input.granularity_elements,
                           " elements: no positive multiple of ", kChunkGranularityElements);
  }
  if (input.largest_operator_elements < 0 || input.largest_operator_elements > kModelElementsMax) {
    return InvalidArgument("a largest operator of ", input.largest_operator_elements, " elements");
  }
  return absl::OkStatus();
}

// Least bytes that must be there at one chunk size.
struct Minimum {
  Bytes operation;  // on the device
  Bytes update;     // on the device or the host
  Bytes storage;    // on both together, when there are no files
};

Minimum MinimumAt(const ChunkSizeInput& input, int64_t chunk_elements) {
  const Bytes slot_bytes(chunk_elements * 2);
  int64_t operator_elements = input.largest_operator_elements;
  int64_t operation_slots = 0;  // per chunk, the most of any group
  int64_t update_slots = 0;
  int64_t storage_slots = 0;
  for (const GroupExtent& group : input.groups) {
    const ChunkSlots slots = SlotsPerChunk(group, input);
    operator_elements = std::max(operator_elements, group.largest_tensor_elements);
    operation_slots = std::max(operation_slots, slots.parameter + slots.gradient);
    if (slots.gradient > 0) {
      update_slots = std::max(update_slots, slots.parameter + slots.gradient + slots.optimizer);
    }
    storage_slots += ChunkCount(group, chunk_elements) / group.data_parallel_degree *
                     (slots.parameter + slots.optimizer);
  }
  // A range that starts anywhere touches one chunk more than it fills.
  const int64_t operator_chunks =
      std::min(CeilDiv(operator_elements, chunk_elements) + 1, ChunkCount(input, chunk_elements));
  const int64_t activation_slots = CeilDiv(input.activation_bytes.count(), slot_bytes.count());
  return {.operation = slot_bytes * (operator_chunks * operation_slots + activation_slots),
          .update = slot_bytes * update_slots,
          .storage = slot_bytes * storage_slots};
}

absl::Status CheckFits(const ChunkSizeInput& input, int64_t chunk_elements) {
  const Minimum minimum = MinimumAt(input, chunk_elements);
  if (minimum.operation > input.device_budget) {
    return ResourceExhausted("the largest operator and the activations need ",
                             minimum.operation.count(), " bytes of device memory with chunks of ",
                             chunk_elements, " elements; the budget is ",
                             input.device_budget.count(), " bytes");
  }
  if (minimum.update > std::max(input.device_budget, input.host_budget)) {
    return ResourceExhausted("the update of one chunk of ", chunk_elements, " elements needs ",
                             minimum.update.count(), " bytes on the device or the host; the ",
                             "device budget is ", input.device_budget.count(),
                             " bytes, the host budget ", input.host_budget.count(), " bytes");
  }
  const Bytes memory = input.device_budget + input.host_budget;
  if (input.files == FileTier::kAbsent && minimum.storage > memory) {
    return ResourceExhausted("parameters and optimizer states need ", minimum.storage.count(),
                             " bytes with chunks of ", chunk_elements,
                             " elements; device and host together have ", memory.count(),
                             " bytes and there is no file tier");
  }
  return absl::OkStatus();
}

double PaddingFraction(const ChunkSizeInput& input, int64_t chunk_elements) {
  double used = 0.0;  // in slots' worth of elements, over all state kinds
  double allocated = 0.0;
  for (const GroupExtent& group : input.groups) {
    const ChunkSlots slots = SlotsPerChunk(group, input);
    const auto weight = static_cast<double>(slots.parameter + slots.gradient + slots.optimizer);
    used += weight * static_cast<double>(group.used_elements);
    allocated += weight * static_cast<double>(ChunkCount(group, chunk_elements)) *
                 static_cast<double>(chunk_elements);
  }
  return 1.0 - used / allocated;
}

// Less is better, the first member matters most.
struct Penalty {
  int64_t missing_device_slots;
  int64_t missed_aims;
  double padding;          // 0 within the goal
  double count_deviation;  // factor to the preferred chunk count, >= 1

  auto operator<=>(const Penalty&) const = default;
};

Penalty PenaltyOf(const ChunkSizeInput& input, int64_t chunk_elements) {
  const bool is_large = IsLargeModel(input);
  const int64_t count = ChunkCount(input, chunk_elements);
  const int64_t device_slots = input.device_budget.count() / (chunk_elements * 2);
  const bool is_slot_small = is_large && chunk_elements < kLargeModelChunkElements;
  const double padding = PaddingFraction(input, chunk_elements);
  const double padding_goal = is_large ? kLargeModelPaddingGoal : kSmallModelPaddingGoal;
  const int64_t preferred = std::clamp(TotalElements(input) / kLargeModelChunkElements,
                                       kPreferredChunkCountMin, kPreferredChunkCountMax);
  return {.missing_device_slots = std::max<int64_t>(0, kDeviceSlotsAim - device_slots),
          .missed_aims = (count > kChunkCountAimMax || is_slot_small) ? 1 : 0,
          .padding = padding <= padding_goal ? 0.0 : padding,
          .count_deviation = static_cast<double>(std::max(count, preferred)) /
                             static_cast<double>(std::min(count, preferred))};
}

bool IsPossible(const ChunkSizeInput& input, int64_t chunk_elements) {
  return ChunkCount(input, chunk_elements) <= kChunkCountMax &&
         CheckFits(input, chunk_elements).ok();
}

// The best possible multiple of `granularity`; empty when none is possible.
std::optional<int64_t> BestMultipleOf(int64_t granularity, const ChunkSizeInput& input) {
  const int64_t count_min =
      IsLargeModel(input) ? kLargeModelChunkCountMin : kSmallModelChunkCountMin;
  const int64_t largest = std::min(
      {TotalElements(input) / count_min, input.device_budget.count() / 2, kChunkElementsMax});
  std::optional<int64_t> best;
  std::optional<Penalty> best_penalty;
  // A model too small for `count_min` chunks takes the smallest ones.
  for (int64_t candidate = granularity; candidate <= std::max(granularity, largest);
       candidate += granularity) {
    const Penalty penalty = PenaltyOf(input, candidate);
    if (best.has_value() && !(penalty < *best_penalty)) continue;
    if (!IsPossible(input, candidate)) continue;
    best = candidate;
    best_penalty = penalty;
  }
  return best;
}

}  // namespace

absl::StatusOr<int64_t> ChooseChunkElements(const ChunkSizeInput& input) {
  GANTRY_RETURN_IF_ERROR(CheckInput(input));
  GANTRY_RETURN_IF_ERROR(CheckFits(input, input.granularity_elements));
  const int64_t large = RoundUp(kHugePageChunkElements, input.granularity_elements);
  if (TotalElements(input) >= kSmallModelChunkCountMin * large &&
      input.device_budget >= kDeviceSlotsAim * Bytes(large * 2)) {
    const std::optional<int64_t> best = BestMultipleOf(large, input);
    if (best.has_value()) return *best;
  }
  const std::optional<int64_t> best = BestMultipleOf(input.granularity_elements, input);
  if (best.has_value()) return *best;
  return ResourceExhausted("a model of ", TotalElements(input), " elements would need more than ",
                           kChunkCountMax, " chunks to fit a device budget of ",
                           input.device_budget.count(), " bytes");
}

}  // namespace gantry
