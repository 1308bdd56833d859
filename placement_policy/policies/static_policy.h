// The static policy: given fractions of the unique bytes stay off the device, each honoured within
// one chunk. Internal to placement_policy; users call CreatePolicy. Stateless, any thread may call
// Place.
//
// Chunks are taken in order, so the first layers stay on the device: in the backward pass their
// gradients come last and in the next forward pass they are needed first, so that theirs is the
// path with the least time to move anything (simulated: 1.49 s a step with the first layers
// resident, 2.29 s with the last). Optimizer states lie, in the order of their chunks, on the
// device, on the host, in files. Resident parts are never larger than asked for.
#ifndef GANTRY_PLACEMENT_POLICY_POLICIES_STATIC_POLICY_H_
#define GANTRY_PLACEMENT_POLICY_POLICIES_STATIC_POLICY_H_

#include <memory>

#include "placement_policy/policy.h"

namespace gantry {

// REQUIRES: fractions in [0, 1]. Place's errors: kInvalidArgument for spilled states on a machine
// without files; kResourceExhausted when the pinned part does not fit its tier, with the values of
// single fractions that would.
std::unique_ptr<PlacementPolicy> CreateStaticPolicy(const StaticFractions& fractions);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_POLICIES_STATIC_POLICY_H_
