#include "kernels/simd_targets.h"

#include <hwy/targets.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace gantry {

std::vector<SimdTarget> SupportedSimdTargets() {
  std::vector<SimdTarget> targets;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    targets.push_back(SimdTarget{target});
  }
  return targets;
}

std::string_view Name(SimdTarget target) { return hwy::TargetName(static_cast<int64_t>(target)); }

ScopedSimdTarget::ScopedSimdTarget(SimdTarget target) {
  hwy::SetSupportedTargetsForTest(static_cast<int64_t>(target));
}
ScopedSimdTarget::~ScopedSimdTarget() { hwy::SetSupportedTargetsForTest(0); }

}  // namespace gantry
