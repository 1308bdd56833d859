// The policies that treat every chunk alike: device, cpu, auto and lru. Internal to
// placement_policy; users call CreatePolicy. Stateless, any thread may call Place.
#ifndef GANTRY_PLACEMENT_POLICY_POLICIES_SIMPLE_POLICIES_H_
#define GANTRY_PLACEMENT_POLICY_POLICIES_SIMPLE_POLICIES_H_

#include <memory>
#include <string_view>

#include "placement_policy/policy.h"

namespace gantry {

// Everything pinned on the device, updates there.
std::unique_ptr<PlacementPolicy> CreateDevicePolicy();

// Updates on the host, optimizer states float there; parameters leave the device after each use. On
// a unified machine the device is the host, so parameters are at home and float: below is only the
// file tier, where this policy does not want them.
std::unique_ptr<PlacementPolicy> CreateCpuPolicy();

// Updates on the host, everything floats and leaves in `eviction` order.
std::unique_ptr<PlacementPolicy> CreateFloatingPolicy(std::string_view name,
                                                      EvictionOrder eviction);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_POLICIES_SIMPLE_POLICIES_H_
