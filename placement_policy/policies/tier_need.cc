#include "placement_policy/policies/tier_need.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/tier.h"
#include "placement_policy/machine.h"

namespace gantry {
namespace {

// Ample for real chunks (at most 10 slots each), small enough that sums do not overflow.
constexpr int64_t kSlotsPerChunkMax = int64_t{1} << 10;
constexpr int64_t kActivationSlotsMax = int64_t{1} << 40;

int64_t SlotsOn(Tier tier, const Machine& machine) {
  return tier == Tier::kDevice ? machine.device_slots : machine.host_slots;
}

}  // namespace

absl::Status ValidateInput(const PolicyInput& input) {
  GANTRY_RETURN_IF_ERROR(input.machine.Validate());
  const auto is_count = [](int64_t slots) { return slots >= 0 && slots <= kSlotsPerChunkMax; };
  for (size_t i = 0; i < input.chunks.size(); ++i) {
    const ChunkFacts& chunk = input.chunks[i];
    if (!is_count(chunk.parameter_slots) || chunk.parameter_slots == 0 ||
        !is_count(chunk.gradient_slots) || !is_count(chunk.optimizer_slots)) {
      return InvalidArgument("chunk ", i, " has ", chunk.parameter_slots, " parameter, ",
                             chunk.gradient_slots, " gradient and ", chunk.optimizer_slots,
                             " optimizer slots");
    }
  }
  if (input.activation_slots_max < 0 || input.activation_slots_max > kActivationSlotsMax) {
    return InvalidArgument("activation_slots_max is ", input.activation_slots_max);
  }
  return absl::OkStatus();
}

TierNeed NeedOf(Tier tier, const PolicyInput& input, const Placement& placement) {
  GANTRY_CHECK_EQ(placement.chunks.size(), input.chunks.size());
  const bool is_device = tier == Tier::kDevice;
  TierNeed need{.pinned_slots = 0, .working_slots = is_device ? input.activation_slots_max : 0};
  for (size_t i = 0; i < input.chunks.size(); ++i) {
    const ChunkFacts& chunk = input.chunks[i];
    const ChunkPlacement& place = placement.chunks[i];
    const bool is_parameter_pinned = is_device && place.parameter_on_device == Residency::kPinned;
    const bool is_updated_here = place.update_tier == tier;
    const bool is_optimizer_pinned =
        is_updated_here && place.optimizer_on_update_tier == Residency::kPinned;
    if (is_parameter_pinned) need.pinned_slots += chunk.parameter_slots;
    if (is_optimizer_pinned) need.pinned_slots += chunk.optimizer_slots;
    const bool has_update = chunk.gradient_slots + chunk.optimizer_slots > 0;
    if (is_updated_here && has_update) {
      const int64_t update_slots = chunk.gradient_slots +
                                   (is_parameter_pinned ? 0 : chunk.parameter_slots) +
                                   (is_optimizer_pinned ? 0 : chunk.optimizer_slots);
      need.working_slots = std::max(need.working_slots, update_slots);
    }
  }
  return need;
}

absl::Status CheckFits(std::string_view policy, const PolicyInput& input,
                       const Placement& placement) {
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    const TierNeed need = NeedOf(tier, input, placement);
    const int64_t there = SlotsOn(tier, input.machine);
    if (need.slots() <= there) continue;
    const Bytes slot = input.machine.slot_bytes;
    return ResourceExhausted(
        "policy '", policy, "': the ", tier, " tier needs ", (slot * need.slots()).count(),
        " bytes (", (slot * need.pinned_slots).count(), " pinned, ",
        (slot * need.working_slots).count(), " for one operator or update), it has ",
        (slot * there).count(), " bytes");
  }
  return absl::OkStatus();
}

}  // namespace gantry
