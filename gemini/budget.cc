#include "gemini/budget.h"

#include <algorithm>
#include <array>

#include "base/strings.h"

namespace gantry {
namespace {

bool UpdatesOnDevice(const BudgetInput& input, size_t chunk) {
  return input.machine.unified || input.placement->chunks[chunk].update_tier == Tier::kDevice;
}

// Slots that have no other place than device and host memory.
struct MemoryOnly {
  int64_t device = 0;
  int64_t host = 0;
};

// Whether some blocks take one slot and some two.
bool SizesDiffer(const ChunkLayout& layout) {
  std::array<bool, 3> takes{};  // by slots
  for (int64_t c = 0; c < layout.chunk_count(); ++c) {
    for (int kind = 0; kind < kStateKindCount; ++kind) {
      const BlockId block{static_cast<StateKind>(kind), ChunkId(c)};
      if (layout.HasBlock(block)) takes[static_cast<size_t>(layout.slots_of(block))] = true;
    }
  }
  return takes[1] && takes[2];
}

MemoryOnly CountWithoutFiles(const BudgetInput& input, std::span<const ChunkFacts> facts) {
  MemoryOnly count;
  for (size_t c = 0; c < facts.size(); ++c) {
    const int64_t updated = facts[c].gradient_slots + facts[c].optimizer_slots;
    if (input.machine.unified) {
      count.device += facts[c].parameter_slots + updated;
      continue;
    }
    (UpdatesOnDevice(input, c) ? count.device : count.host) += updated;
    const bool pinned = input.placement->chunks[c].parameter_on_device == Residency::kPinned &&
                        UpdatesOnDevice(input, c);
    (pinned ? count.device : count.host) += facts[c].parameter_slots;
  }
  return count;
}

}  // namespace

std::vector<ChunkFacts> FactsOf(const ChunkLayout& layout) {
  std::vector<ChunkFacts> facts;
  for (int64_t c = 0; c < layout.chunk_count(); ++c) {
    const auto slots = [&](StateKind kind) {
      const BlockId block{kind, ChunkId(c)};
      return layout.HasBlock(block) ? layout.slots_of(block) : int64_t{0};
    };
    facts.push_back({.parameter_slots = slots(StateKind::kParameter),
                     .gradient_slots = slots(StateKind::kGradient),
                     .optimizer_slots = slots(StateKind::kMaster) + slots(StateKind::kMomentum) +
                                        slots(StateKind::kVariance)});
  }
  return facts;
}

BudgetNeed LeastBudget(const BudgetInput& input) {
  static constexpr Phase kLeasePhases[] = {Phase::kForward, Phase::kBackward};
  BudgetNeed need;
  int64_t moved_blocks = 0;
  for (const CompiledStep* step : input.steps) {
    const SlotNeed largest = LargestNeed(step->trace, kLeasePhases);
    const int64_t first_moved = input.layout->chunk_count() * kStateKindCount;
    for (const Moment& moment : step->trace.moments) {
      int64_t slots = moment.activation_slots;
      for (const BlockUse& use : step->trace.uses_of(moment)) slots += use.block >= first_moved;
      need.activation_slots = std::max(need.activation_slots, slots);
    }
    moved_blocks = std::max(moved_blocks, step->moved_blocks);
    if (largest.moment < 0 || largest.slots <= need.device_slots) continue;
    need.device_slots = largest.slots;
    need.operator_block_slots = largest.block_slots;
    const Moment& moment = step->trace.moments[static_cast<size_t>(largest.moment)];
    need.operator_name = step->trace.names[static_cast<size_t>(moment.name)];
  }
  const std::vector<ChunkFacts> facts = FactsOf(*input.layout);
  int64_t largest_block = 0;
  int64_t update_on_device = 0;
  int64_t update_on_host = 0;
  int64_t passing = 2;  // the zeros or file bytes of a 4-byte block pass through the host
  for (size_t c = 0; c < facts.size(); ++c) {
    largest_block = std::max({largest_block, facts[c].parameter_slots, facts[c].gradient_slots});
    if (facts[c].gradient_slots == 0) continue;
    const int64_t slots =
        facts[c].parameter_slots + facts[c].gradient_slots + facts[c].optimizer_slots;
    int64_t& update = UpdatesOnDevice(input, c) ? update_on_device : update_on_host;
    update = std::max(update, slots);
    // A parameter and its master are written together, on the host.
    const BlockId master{StateKind::kMaster, ChunkId(static_cast<int64_t>(c))};
    if (UpdatesOnDevice(input, c) && input.layout->HasBlock(master)) {
      passing = std::max(passing, facts[c].parameter_slots + input.layout->slots_of(master));
    }
  }
  need.update_slots = std::max(update_on_device, update_on_host);
  if (update_on_device > 0) {
    need.device_slots = std::max(need.device_slots, need.activation_slots + update_on_device);
  }
  if (!input.machine.unified) {
    need.host_slots = update_on_host + std::max(largest_block, passing);
  }
  if (!input.machine.has_file_tier) {
    const MemoryOnly only = CountWithoutFiles(input, facts);
    need.device_slots =
        std::max(need.device_slots, only.device == 0 ? 0 : only.device + need.activation_slots);
    if (!input.machine.unified) {
      // Device and host exchange blocks without a third place: one slot free on each would be too
      // few for a block of two.
      if (only.device > 0 && SizesDiffer(*input.layout)) passing = std::max<int64_t>(passing, 3);
      need.host_slots = std::max(need.host_slots, only.host + moved_blocks + passing);
    }
  }
  return need;
}

absl::Status CheckBudget(const BudgetInput& input, const BudgetNeed& need) {
  const Bytes slot = input.machine.slot_bytes;
  const auto sized = [&](std::string_view tier, int64_t have, int64_t least, std::string_view why) {
    return ResourceExhausted(
        "the ", tier, " budget holds ", have, " slots of ", slot, " (", slot * have, ") but ", why,
        "; the least ", tier, " budget that works with chunks of ", input.layout->chunk_elements(),
        " elements is ", (slot * least).count(), " bytes (", slot * least, ")");
  };
  const std::string_view no_files =
      input.machine.has_file_tier
          ? ""
          : ", since without a spill directory everything must be in memory";
  if (input.machine.device_slots < need.device_slots) {
    const std::string why =
        need.operator_name.empty()
            ? StrCat("the update of one chunk needs ", slot * need.update_slots, no_files)
            : StrCat("operator '", need.operator_name, "' needs ", slot * need.operator_block_slots,
                     " of parameters and gradients, activations need ",
                     slot * need.activation_slots, " and the update of one chunk needs ",
                     slot * need.update_slots, no_files);
    return sized("device", input.machine.device_slots, need.device_slots, why);
  }
  if (!input.machine.unified && input.machine.host_slots < need.host_slots) {
    return sized("host", input.machine.host_slots, need.host_slots,
                 StrCat("the update of one chunk needs ", slot * need.update_slots, no_files));
  }
  return absl::OkStatus();
}

}  // namespace gantry
