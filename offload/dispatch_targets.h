// For tests and benchmarks of Highway kernels: the instruction sets that were compiled in and that
// this processor has, and a scope in which kernels are dispatched to one of them. Process-wide, so
// not for code that runs beside other kernels. Not thread-safe.
#ifndef GANTRY_OFFLOAD_DISPATCH_TARGETS_H_
#define GANTRY_OFFLOAD_DISPATCH_TARGETS_H_

#include <hwy/highway.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gantry {

// Highway's bits, best first; the last is the scalar one.
inline std::vector<int64_t> DispatchTargets() { return hwy::SupportedAndGeneratedTargets(); }

inline std::string DispatchTargetName(int64_t target) { return hwy::TargetName(target); }

class ScopedDispatchTarget {
 public:
  explicit ScopedDispatchTarget(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
  }
  ~ScopedDispatchTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  ScopedDispatchTarget(const ScopedDispatchTarget&) = delete;
  ScopedDispatchTarget& operator=(const ScopedDispatchTarget&) = delete;
};

}  // namespace gantry

#endif  // GANTRY_OFFLOAD_DISPATCH_TARGETS_H_
