// Which instruction sets the kernels are compiled for: the baseline (SSE2 on x86-64), AVX2 and
// AVX-512; the binary picks one at run time. Kernel sources include this before any Highway header.
#ifndef GANTRY_KERNELS_SIMD_TARGETS_H_
#define GANTRY_KERNELS_SIMD_TARGETS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#if defined(HWY_DISABLED_TARGETS)
#error "include kernels/simd_targets.h before Highway"
#endif
// SSSE3, SSE4 and the Ice Lake variant of AVX-512 would add code and no speed.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)

namespace gantry {

// One instruction set, as Highway's bit.
enum class SimdTarget : int64_t {};

// The compiled instruction sets that this CPU has, best first.
std::vector<SimdTarget> SupportedSimdTargets();
std::string_view Name(SimdTarget target);

// Makes all kernels use `target`, until destroyed. For tests and benchmarks; not thread-safe, also
// not with running kernels.
class ScopedSimdTarget {
 public:
  explicit ScopedSimdTarget(SimdTarget target);
  ~ScopedSimdTarget();
  ScopedSimdTarget(const ScopedSimdTarget&) = delete;
  ScopedSimdTarget& operator=(const ScopedSimdTarget&) = delete;
};

}  // namespace gantry

#endif  // GANTRY_KERNELS_SIMD_TARGETS_H_
