#include "placement_policy/policy.h"

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "base/strings.h"
#include "placement_policy/policies/simple_policies.h"
#include "placement_policy/policies/static_policy.h"

namespace gantry {
namespace {

constexpr std::array<std::string_view, 6> kPolicyNames = {"planned", "device", "cpu",
                                                          "static",  "auto",   "lru"};

absl::Status CheckFraction(std::string_view name, double fraction) {
  // Written so that a NaN is refused as well.
  if (fraction >= 0.0 && fraction <= 1.0) return absl::OkStatus();
  return InvalidArgument(name, " is ", fraction, "; it must be in [0, 1]");
}

absl::Status UnknownPolicy(std::string_view name) {
  const std::vector<std::string> names(kPolicyNames.begin(), kPolicyNames.end());
  const std::string nearest = NearestName(name, names.data(), names.size());
  if (!nearest.empty()) {
    return InvalidArgument("unknown policy '", name, "'; did you mean '", nearest, "'?");
  }
  std::string all;
  for (const std::string& known : names) all += (all.empty() ? "" : ", ") + known;
  return InvalidArgument("unknown policy '", name, "'; there are ", all);
}

}  // namespace

std::span<const std::string_view> PolicyNames() { return kPolicyNames; }

absl::StatusOr<std::unique_ptr<PlacementPolicy>> CreatePolicy(std::string_view name,
                                                              const StaticFractions& fractions) {
  for (const absl::Status& status :
       {CheckFraction("offload_parameters", fractions.offload_parameters),
        CheckFraction("offload_optimizer", fractions.offload_optimizer),
        CheckFraction("spill_optimizer", fractions.spill_optimizer)}) {
    if (!status.ok()) return status;
  }
  if (name == "device") return CreateDevicePolicy();
  if (name == "cpu") return CreateCpuPolicy();
  if (name == "static") return CreateStaticPolicy(fractions);
  if (name == "auto" || name == kPlannedPolicy) {
    return CreateFloatingPolicy(name, EvictionOrder::kFurthestNextUse);
  }
  if (name == "lru") return CreateFloatingPolicy(name, EvictionOrder::kLeastRecentlyUsed);
  return UnknownPolicy(name);
}

}  // namespace gantry
