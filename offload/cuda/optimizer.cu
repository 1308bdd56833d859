// Built with -fmad=false: products and sums are rounded apart, as on the host. Division and square
// root are correctly rounded by default.
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "base/dtype.h"
#include "chunk/optimizer_states.h"
#include "device/cuda/device_code.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"
#include "offload/cuda/optimizer.h"
#include "offload/elements.h"
#include "offload/gradient_norm.h"
#include "offload/optimizer.h"
#include "offload/split_master.h"

namespace gantry::cuda {
namespace {

constexpr int kBlockThreads = 256;
constexpr int64_t kBlocksMax = 1 << 16;
constexpr int kSumLanes = 16;  // of a segment's sum, as on the host

// Where the new master goes beside the f32 master: nowhere, to elements, or to the pair that
// replaces it.
struct Nowhere {};
struct SplitBFloat16 {};

// As a plain structure: what the kernel takes.
struct Arrays {
  int64_t count;
  float* master;
  uint16_t* low_half;
  float* momentum;
  float* variance;
  const void* gradient;
  void* parameter;
};

__device__ __forceinline__ float Canonical(float value) {
  return value != value ? __uint_as_float(0x7fc00000U) : value;
}

__device__ __forceinline__ void AdamStep(const OptimizerScalars& s, float g, float& p, float& m,
                                         float& v) {
  m = s.beta1 * m + s.one_minus_beta1 * g;
  v = s.beta2 * v + s.one_minus_beta2 * g * g;
  const float denominator = sqrtf(v) / s.correction2 + s.epsilon;
  p = p - s.step_size * m / denominator;
}

template <OptimizerKind kKind>
__device__ __forceinline__ void Apply(const OptimizerScalars& s, float g, float& p, float& m,
                                      float& v) {
  if constexpr (kKind == OptimizerKind::kAdamW) {
    p = p * s.decay;
    AdamStep(s, g, p, m, v);
  } else if constexpr (kKind == OptimizerKind::kAdam) {
    AdamStep(s, g + s.weight_decay * p, p, m, v);
  } else if constexpr (kKind == OptimizerKind::kSgd) {
    m = s.beta1 * m + (g + s.weight_decay * p);
    p = p - s.learning_rate * m;
  } else {
    static_assert(kKind == OptimizerKind::kLion);
    const float c = s.beta1 * m + s.one_minus_beta1 * g;
    // Zero and NaN stay what they are: a NaN must show in the parameter.
    const float sign = c > 0.0F ? 1.0F : c < 0.0F ? -1.0F : c;
    p = p * s.decay - s.learning_rate * sign;
    m = s.beta2 * m + s.one_minus_beta2 * g;
  }
}

constexpr bool HasVariance(OptimizerKind kind) {
  return kind == OptimizerKind::kAdamW || kind == OptimizerKind::kAdam;
}

template <OptimizerKind kKind, typename Gradient, typename Parameter>
__global__ void __launch_bounds__(kBlockThreads)
    UpdateKernel(Arrays arrays, OptimizerScalars scalars, float gradient_factor) {
  constexpr bool kSplit = std::is_same_v<Parameter, SplitBFloat16>;
  constexpr bool kVariance = HasVariance(kKind);
  const auto* gradient = static_cast<const Gradient*>(arrays.gradient);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kBlockThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; i < arrays.count;
       i += stride) {
    const float g = gradient_factor * static_cast<float>(gradient[i]);
    float m = arrays.momentum[i];
    float v = kVariance ? arrays.variance[i] : 0.0F;
    float p = 0.0F;
    if constexpr (kSplit) {
      auto* parameter = static_cast<BFloat16*>(arrays.parameter);
      p = JoinMaster(parameter[i], arrays.low_half[i], v);
      v = VarianceOf(v);
      Apply<kKind>(scalars, g, p, m, v);
      const SplitState split = SplitMaster(Canonical(p), Canonical(v));
      parameter[i] = split.parameter;
      arrays.low_half[i] = split.low_half;
      arrays.variance[i] = split.variance;
    } else {
      p = arrays.master[i];
      Apply<kKind>(scalars, g, p, m, v);
      p = Canonical(p);
      arrays.master[i] = p;
      if constexpr (!std::is_same_v<Parameter, Nowhere>) {
        static_cast<Parameter*>(arrays.parameter)[i] = Parameter(p);
      }
      if constexpr (kVariance) arrays.variance[i] = Canonical(v);
    }
    arrays.momentum[i] = Canonical(m);
  }
}

// Two segments to a warp: each lane adds every sixteenth square in order, then halves are added.
template <typename Element>
__global__ void __launch_bounds__(kBlockThreads)
    SumSquaresKernel(const Element* gradient, int64_t count, double* partials) {
  constexpr int kSegments = kBlockThreads / kSumLanes;
  const int lane = static_cast<int>(threadIdx.x) % kSumLanes;
  const int64_t segment =
      static_cast<int64_t>(blockIdx.x) * kSegments + static_cast<int>(threadIdx.x) / kSumLanes;
  const int64_t begin = segment * kNormSegmentElements;
  int64_t end = begin + kNormSegmentElements;
  if (end > count) end = count;
  double sum = 0.0;
  for (int64_t i = begin + lane; i < end; i += kSumLanes) {
    const double x = static_cast<double>(static_cast<float>(gradient[i]));
    sum += x * x;
  }
#pragma unroll
  for (int width = kSumLanes / 2; width > 0; width /= 2) {
    sum += __shfl_down_sync(0xffffffffU, sum, static_cast<unsigned>(width), kSumLanes);
  }
  if (lane == 0 && begin < count) {
    partials[segment] = sum != sum ? __longlong_as_double(0x7ff8000000000000LL) : sum;
  }
}

template <OptimizerKind kKind, typename Gradient, typename Parameter>
int Launch(CudaStream stream, const OptimizerSlice& slice, const OptimizerScalars& scalars,
           float gradient_factor) {
  const Arrays arrays{.count = slice.count,
                      .master = slice.master,
                      .low_half = slice.low_half,
                      .momentum = slice.momentum,
                      .variance = slice.variance,
                      .gradient = slice.gradient.data,
                      .parameter = slice.parameter.has_value() ? slice.parameter->data : nullptr};
  int64_t blocks = (slice.count + kBlockThreads - 1) / kBlockThreads;
  if (blocks > kBlocksMax) blocks = kBlocksMax;
  const LaunchShape shape{.grid = {.x = static_cast<uint32_t>(blocks)},
                          .block = {.x = kBlockThreads}};
  return GANTRY_LAUNCH((UpdateKernel<kKind, Gradient, Parameter>), shape, stream, arrays, scalars,
                       gradient_factor);
}

template <OptimizerKind kKind, typename Gradient>
int LaunchFrom(CudaStream stream, const OptimizerSlice& slice, const OptimizerScalars& scalars,
               float factor) {
  if constexpr (HasVariance(kKind)) {
    if (slice.low_half != nullptr) {
      return Launch<kKind, Gradient, SplitBFloat16>(stream, slice, scalars, factor);
    }
  }
  if (!slice.parameter.has_value()) {
    return Launch<kKind, Gradient, Nowhere>(stream, slice, scalars, factor);
  }
  switch (slice.parameter->dtype) {
    case DType::kBF16:
      return Launch<kKind, Gradient, BFloat16>(stream, slice, scalars, factor);
    case DType::kF16:
      return Launch<kKind, Gradient, Float16>(stream, slice, scalars, factor);
    case DType::kF32:
      break;
  }
  return Launch<kKind, Gradient, float>(stream, slice, scalars, factor);
}

template <OptimizerKind kKind>
int LaunchBy(CudaStream stream, const OptimizerSlice& slice, const OptimizerScalars& scalars,
             float factor) {
  switch (slice.gradient.dtype) {
    case DType::kBF16:
      return LaunchFrom<kKind, BFloat16>(stream, slice, scalars, factor);
    case DType::kF16:
      return LaunchFrom<kKind, Float16>(stream, slice, scalars, factor);
    case DType::kF32:
      break;
  }
  return LaunchFrom<kKind, float>(stream, slice, scalars, factor);
}

}  // namespace

int UpdateElements(CudaStream stream, const OptimizerSlice& slice, const OptimizerScalars& scalars,
                   float gradient_factor) {
  GANTRY_CHECK(slice.count >= 0);
  if (slice.count == 0) return 0;
  switch (scalars.kind) {
    case OptimizerKind::kAdamW:
      return LaunchBy<OptimizerKind::kAdamW>(stream, slice, scalars, gradient_factor);
    case OptimizerKind::kAdam:
      return LaunchBy<OptimizerKind::kAdam>(stream, slice, scalars, gradient_factor);
    case OptimizerKind::kSgd:
      return LaunchBy<OptimizerKind::kSgd>(stream, slice, scalars, gradient_factor);
    case OptimizerKind::kLion:
      return LaunchBy<OptimizerKind::kLion>(stream, slice, scalars, gradient_factor);
    case OptimizerKind::kAdafactor:
      break;
  }
  GANTRY_CHECK(false) << "adafactor is not elementwise";
  return 0;
}

int SegmentSumSquares(CudaStream stream, ConstElements gradient, int64_t count, double* partials) {
  if (count == 0) return 0;
  constexpr int64_t kSegments = kBlockThreads / kSumLanes;
  const int64_t blocks = (SegmentCount(count) + kSegments - 1) / kSegments;
  const LaunchShape shape{.grid = {.x = static_cast<uint32_t>(blocks)},
                          .block = {.x = kBlockThreads}};
  switch (gradient.dtype) {
    case DType::kBF16:
      return GANTRY_LAUNCH(SumSquaresKernel<BFloat16>, shape, stream,
                           static_cast<const BFloat16*>(gradient.data), count, partials);
    case DType::kF16:
      return GANTRY_LAUNCH(SumSquaresKernel<Float16>, shape, stream,
                           static_cast<const Float16*>(gradient.data), count, partials);
    case DType::kF32:
      break;
  }
  return GANTRY_LAUNCH(SumSquaresKernel<float>, shape, stream,
                       static_cast<const float*>(gradient.data), count, partials);
}

}  // namespace gantry::cuda
