#include "placement_policy/check_fits.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr int64_t kUnseen = -1;

std::string SlotsText(int64_t slots, const Machine& machine) {
  return StrCat(slots, " slots of ", machine.slot_bytes);
}

absl::Status MomentError(const Trace& trace, size_t index, int64_t block_slots,
                         const Machine& machine) {
  const Moment& moment = trace.moments[index];
  const std::string who =
      StrCat("moment ", index, " ('", trace.names[static_cast<size_t>(moment.name)], "')");
  const int64_t needed = moment.activation_slots + block_slots;
  if (moment.phase == Phase::kOptimizer && moment.activation_slots == 0) {
    return ResourceExhausted(who, " needs ", SlotsText(needed, machine),
                             " at once; the device has ", machine.device_slots, ", the host ",
                             machine.host_slots);
  }
  return ResourceExhausted(who, " needs ", SlotsText(needed, machine), " at once on the device (",
                           moment.activation_slots, " for activations, ", block_slots,
                           " for its blocks), which has ", machine.device_slots);
}

// Slots of the blocks whose content lasts from one step to the next: all that are used, and not
// overwritten by their first use.
int64_t LastingSlots(const Trace& trace) {
  std::vector<bool> seen(trace.block_slots.size(), false);
  int64_t slots = 0;
  for (const Moment& moment : trace.moments) {
    for (const BlockUse& use : trace.uses_of(moment)) {
      const auto block = static_cast<size_t>(use.block);
      if (seen[block]) continue;
      seen[block] = true;
      if (use.access != BlockAccess::kCreate) slots += trace.block_slots[block];
    }
  }
  return slots;
}

}  // namespace

absl::Status CheckFits(const Trace& trace, const Machine& machine) {
  GANTRY_CHECK_OK(trace.Validate());
  GANTRY_CHECK_OK(machine.Validate());
  if (trace.slot_bytes != Bytes(0) && trace.slot_bytes != machine.slot_bytes) {
    return InvalidArgument("the trace counts in slots of ", trace.slot_bytes.count(),
                           " bytes, the machine in slots of ", machine.slot_bytes.count());
  }
  std::vector<int64_t> counted_at(trace.block_slots.size(), kUnseen);
  for (size_t i = 0; i < trace.moments.size(); ++i) {
    const Moment& moment = trace.moments[i];
    int64_t block_slots = 0;
    for (const BlockUse& use : trace.uses_of(moment)) {
      const auto block = static_cast<size_t>(use.block);
      if (counted_at[block] == static_cast<int64_t>(i)) continue;
      counted_at[block] = static_cast<int64_t>(i);
      block_slots += trace.block_slots[block];
    }
    // Activations are on the device, and an update beside them is, too.
    const bool on_host = moment.phase == Phase::kOptimizer && moment.activation_slots == 0 &&
                         block_slots <= machine.host_slots;
    if (!on_host && moment.activation_slots + block_slots > machine.device_slots) {
      return MomentError(trace, i, block_slots, machine);
    }
  }
  const int64_t lasting = LastingSlots(trace);
  const int64_t there = machine.device_slots + machine.host_slots;
  if (machine.has_file_tier || lasting <= there) return absl::OkStatus();
  return ResourceExhausted("the step keeps ", SlotsText(lasting, machine),
                           " for the next one; device and host have ", there,
                           ", and there is no file tier");
}

}  // namespace gantry
