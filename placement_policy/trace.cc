#include "placement_policy/trace.h"

#include <algorithm>

#include "base/check.h"
#include "base/strings.h"

namespace gantry {
namespace {

// More slots than any machine has, few enough that sums do not overflow.
constexpr int64_t kActivationSlotsMax = int64_t{1} << 40;
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
  if (moment.compute < 0) return bad("compute", moment.compute, " ns");
  if (moment.activation_slots < 0 || moment.activation_slots > kActivationSlotsMax) {
    return bad("activation_slots", moment.activation_slots,
               StrCat(" outside [0, ", kActivationSlotsMax, "]"));
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
  return absl::OkStatus();
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
