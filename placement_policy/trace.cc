#include "placement_policy/trace.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

// More slots than any machine has, few enough that sums do not overflow.
constexpr int64_t kActivationSlotsMax = int64_t{1} << 40;
constexpr int64_t kActivationsMax = int64_t{1} << 22;
// Larger numbers are no integers in a trace file. As nanoseconds, 104 days.
constexpr int64_t kNumberMax = int64_t{1} << 53;
constexpr int64_t kMomentCountMax = std::numeric_limits<int32_t>::max();

absl::Status CheckUse(const Trace& trace, size_t index) {
  const BlockUse& use = trace.uses[index];
  if (use.block < 0 || static_cast<size_t>(use.block) >= trace.block_slots.size()) {
    return InvalidArgument("trace: uses[", index, "].block is ", use.block, " of ",
                           trace.block_slots.size(), " blocks");
  }
  if (trace.block_slots[static_cast<size_t>(use.block)] == 0) {
    return InvalidArgument("trace: uses[", index, "].block is ", use.block,
                           ", which does not exist (0 slots)");
  }
  if (use.access > BlockAccess::kConsume) {
    return InvalidArgument("trace: uses[", index, "].access is ", static_cast<int>(use.access));
  }
  return absl::OkStatus();
}

absl::Status CheckMoment(const Trace& trace, size_t index) {
  const Moment& moment = trace.moments[index];
  const auto use_count = static_cast<int64_t>(trace.uses.size());
  const auto bad = [&](std::string_view field, int64_t value, std::string_view why) {
    return InvalidArgument("trace: moments[", index, "].", field, " is ", value, why);
  };
  if (moment.phase > Phase::kOptimizer) {
    return bad("phase", static_cast<int64_t>(moment.phase), "");
  }
  if (moment.name < 0 || static_cast<size_t>(moment.name) >= trace.names.size()) {
    return bad("name", moment.name, StrCat(" of ", trace.names.size(), " names"));
  }
  if (moment.first_use < 0 || moment.first_use > use_count) {
    return bad("first_use", moment.first_use, StrCat(" of ", use_count, " uses"));
  }
  if (moment.use_count < 0 || moment.use_count > use_count - moment.first_use) {
    return bad("use_count", moment.use_count,
               StrCat(" from ", moment.first_use, " of ", use_count, " uses"));
  }
  if (moment.compute < 0 || moment.compute > kNumberMax) {
    return bad("compute", moment.compute, StrCat(" ns, outside [0, ", kNumberMax, "]"));
  }
  if (moment.activation_slots < 0 || moment.activation_slots > kActivationSlotsMax) {
    return bad("activation_slots", moment.activation_slots,
               StrCat(" outside [0, ", kActivationSlotsMax, "]"));
  }
  if (moment.micro_batch < 0) return bad("micro_batch", moment.micro_batch, "");
  if (moment.layer < -1) return bad("layer", moment.layer, "");
  return absl::OkStatus();
}

// `taken` marks the blocks that an earlier chunk has.
absl::Status CheckChunk(const Trace& trace, size_t index, std::vector<bool>& taken) {
  const TraceChunk& chunk = trace.chunks[index];
  const std::array<std::pair<std::string_view, int32_t>, 5> blocks = {
      {{"parameter", chunk.parameter},
       {"gradient", chunk.gradient},
       {"states[0]", chunk.states[0]},
       {"states[1]", chunk.states[1]},
       {"states[2]", chunk.states[2]}}};
  if (chunk.parameter < 0) {
    return InvalidArgument("trace: chunks[", index, "].parameter is ", chunk.parameter,
                           "; every chunk has one");
  }
  for (const auto& [field, block] : blocks) {
    if (block == -1) continue;
    const auto b = static_cast<size_t>(block);
    if (block < 0 || b >= trace.block_slots.size() || trace.block_slots[b] == 0) {
      return InvalidArgument("trace: chunks[", index, "].", field, " is ", block,
                             ", which is no block of the trace");
    }
    if (taken[b]) {
      return InvalidArgument("trace: chunks[", index, "].", field, " is ", block,
                             ", which another field has already");
    }
    taken[b] = true;
  }
  return absl::OkStatus();
}

absl::Status CheckActivation(const Trace& trace, size_t index) {
  const SavedActivation& saved = trace.activations[index];
  const auto bad = [&](std::string_view field, int64_t value, std::string_view why) {
    return InvalidArgument("trace: activations[", index, "].", field, " is ", value, why);
  };
  if (saved.created < 0 || static_cast<size_t>(saved.created) >= trace.moments.size()) {
    return bad("created", saved.created, StrCat(" of ", trace.moments.size(), " moments"));
  }
  if (saved.used <= saved.created || static_cast<size_t>(saved.used) >= trace.moments.size()) {
    return bad(
        "used", saved.used,
        StrCat("; it must be a moment after ", saved.created, ", of ", trace.moments.size()));
  }
  if (saved.slots < 0 || saved.slots > kActivationSlotsMax) return bad("slots", saved.slots, "");
  if (saved.recompute < 0 || saved.recompute > kNumberMax) {
    return bad("recompute", saved.recompute, StrCat(" ns, outside [0, ", kNumberMax, "]"));
  }
  return absl::OkStatus();
}

// So that a planner may add the times of a step, of many steps even.
absl::Status CheckTimeSum(const Trace& trace) {
  int64_t sum = 0;
  const auto add = [&sum](Nanoseconds time) { return (sum += time) <= kNumberMax; };
  const bool small = std::ranges::all_of(trace.moments, add, &Moment::compute) &&
                     std::ranges::all_of(trace.activations, add, &SavedActivation::recompute);
  if (small) return absl::OkStatus();
  return InvalidArgument("trace: compute and recompute sum up to ", sum, " ns; the most is ",
                         kNumberMax);
}

// At no moment may the saved activations be more than the moment says it holds.
absl::Status CheckActivationSums(const Trace& trace) {
  std::vector<int64_t> change(trace.moments.size() + 1, 0);
  for (const SavedActivation& saved : trace.activations) {
    change[static_cast<size_t>(saved.created)] += saved.slots;
    change[static_cast<size_t>(saved.used) + 1] -= saved.slots;
  }
  int64_t live = 0;
  for (size_t i = 0; i < trace.moments.size(); ++i) {
    live += change[i];
    if (live > trace.moments[i].activation_slots) {
      return InvalidArgument("trace: moments[", i, "].activation_slots is ",
                             trace.moments[i].activation_slots,
                             ", fewer than the saved activations alive then, ", live);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Trace::Validate() const {
  for (size_t i = 0; i < block_slots.size(); ++i) {
    if (block_slots[i] < 0 || block_slots[i] > 2) {
      return InvalidArgument("trace: block_slots[", i, "] is ", static_cast<int>(block_slots[i]),
                             " outside [0, 2]");
    }
  }
  for (size_t i = 0; i < uses.size(); ++i) {
    if (absl::Status status = CheckUse(*this, i); !status.ok()) return status;
  }
  if (static_cast<int64_t>(moments.size()) > kMomentCountMax) {
    return InvalidArgument("trace: moments has ", moments.size(), " entries; the most is ",
                           kMomentCountMax);
  }
  for (size_t i = 0; i < moments.size(); ++i) {
    if (absl::Status status = CheckMoment(*this, i); !status.ok()) return status;
  }
  std::vector<bool> taken(block_slots.size(), false);
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (absl::Status status = CheckChunk(*this, i, taken); !status.ok()) return status;
  }
  // Few enough that their sum does not overflow.
  if (static_cast<int64_t>(activations.size()) > kActivationsMax) {
    return InvalidArgument("trace: activations has ", activations.size(), " entries; the most is ",
                           kActivationsMax);
  }
  for (size_t i = 0; i < activations.size(); ++i) {
    if (absl::Status status = CheckActivation(*this, i); !status.ok()) return status;
  }
  if (slot_bytes < Bytes(0) || slot_bytes > Bytes(kNumberMax)) {
    return InvalidArgument("trace: slot_bytes is ", slot_bytes.count());
  }
  if (tokens < 0 || tokens > kNumberMax) return InvalidArgument("trace: tokens is ", tokens);
  GANTRY_RETURN_IF_ERROR(CheckTimeSum(*this));
  return CheckActivationSums(*this);
}

SlotNeed LargestNeed(const Trace& trace, std::span<const Phase> phases) {
  SlotNeed largest{.slots = 0, .activation_slots = 0, .block_slots = 0, .moment = -1};
  // The last moment that counted a block, so that one used twice in a moment counts once.
  std::vector<int64_t> counted_at(trace.block_slots.size(), -1);
  for (size_t i = 0; i < trace.moments.size(); ++i) {
    const Moment& moment = trace.moments[i];
    if (std::ranges::find(phases, moment.phase) == phases.end()) continue;
    const auto index = static_cast<int64_t>(i);
    int64_t block_slots = 0;
    for (const BlockUse& use : trace.uses_of(moment)) {
      const auto block = static_cast<size_t>(use.block);
      if (counted_at[block] == index) continue;
      counted_at[block] = index;
      block_slots += trace.block_slots[block];
    }
    const int64_t slots = moment.activation_slots + block_slots;
    if (largest.moment >= 0 && slots <= largest.slots) continue;
    largest = {.slots = slots,
               .activation_slots = moment.activation_slots,
               .block_slots = block_slots,
               .moment = index};
  }
  return largest;
}

NextUseIndex::NextUseIndex(const Trace& trace)
    : moment_count_(static_cast<int64_t>(trace.moments.size())),
      first_(trace.block_slots.size() + 1, 0) {
  GANTRY_CHECK_OK(trace.Validate());
  // Counting sort by block; a block used twice in one moment is listed twice, which is harmless.
  for (const Moment& moment : trace.moments) {
    for (const BlockUse& use : trace.uses_of(moment)) ++first_[static_cast<size_t>(use.block) + 1];
  }
  for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
  moments_.resize(static_cast<size_t>(first_.back()));
  std::vector<int64_t> next(first_.begin(), first_.end() - 1);
  for (size_t i = 0; i < trace.moments.size(); ++i) {
    for (const BlockUse& use : trace.uses_of(trace.moments[i])) {
      moments_[static_cast<size_t>(next[static_cast<size_t>(use.block)]++)] =
          static_cast<int32_t>(i);
    }
  }
}

int64_t NextUseIndex::NextUse(int32_t block, int64_t now) const {
  GANTRY_CHECK(block >= 0 && static_cast<size_t>(block) + 1 < first_.size())
      << "block " << block << " of " << first_.size() - 1;
  const auto begin = moments_.begin() + first_[static_cast<size_t>(block)];
  const auto end = moments_.begin() + first_[static_cast<size_t>(block) + 1];
  if (begin == end) return kNever;
  GANTRY_CHECK(now < kNever - 2 * moment_count_ && now >= -moment_count_) << "at time " << now;
  const int64_t offset = (now + moment_count_) % moment_count_;
  const int64_t step_begin = now - offset;
  const auto next = std::upper_bound(begin, end, offset);
  return next != end ? step_begin + *next : step_begin + moment_count_ + *begin;
}

}  // namespace gantry
