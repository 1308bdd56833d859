// What a placement needs of a tier, and the checks that every policy shares. Pure functions.
// Internal to placement_policy.
#ifndef GANTRY_PLACEMENT_POLICY_POLICIES_TIER_NEED_H_
#define GANTRY_PLACEMENT_POLICY_POLICIES_TIER_NEED_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "base/tier.h"
#include "placement_policy/machine.h"
#include "placement_policy/policy.h"

namespace gantry {

// Errors: kInvalidArgument naming the field that is out of range.
absl::Status ValidateInput(const PolicyInput& input);

// Where updates run that do not run on the device: the host, or the device where both are one.
inline Tier HostOf(const Machine& machine) { return machine.unified ? Tier::kDevice : Tier::kHost; }

struct TierNeed {
  int64_t pinned_slots;   // always taken
  int64_t working_slots;  // beside them: one operator with the activations, or one chunk's update
  int64_t slots() const { return pinned_slots + working_slots; }
};
// The least that `placement` needs of `tier` (device or host).
TierNeed NeedOf(Tier tier, const PolicyInput& input, const Placement& placement);

// Errors: kResourceExhausted, with the bytes needed and there, for the first tier that is too
// small.
absl::Status CheckFits(std::string_view policy, const PolicyInput& input,
                       const Placement& placement);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_POLICIES_TIER_NEED_H_
