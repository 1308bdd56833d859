#include <cstdint>
#include <limits>

#include "base/bytes.h"
#include "base/check.h"
#include "device/cuda/device_code.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/router.h"
#include "kernels/views.h"

namespace gantry::cuda {
namespace {

constexpr int kRouteThreads = 128;
constexpr int kGroupThreads = 256;
constexpr int kLaneExperts = 16;  // at most: expert lane + 32 i is a lane's i-th
constexpr int64_t kExpertsMax = kLaneExperts * kWarpThreads;
constexpr float kTiny = 1e-20F;

__device__ __forceinline__ float MinusInfinity() { return __uint_as_float(0xff800000U); }

struct Router {
  RouterScore score;
  int choices;
  bool normalise;
  float scale;
  int experts;
  int64_t tokens;
};

// The token's scores of the lane's experts; minus infinity where there is no expert.
template <typename T>
__device__ __forceinline__ void Score(const Router& router, const T* logits, int lane,
                                      float (&scores)[kLaneExperts]) {
  float maximum = MinusInfinity();
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i) {
    const int expert = lane + i * kWarpThreads;
    scores[i] = expert < router.experts ? ToFloat(logits[expert]) : MinusInfinity();
    maximum = fmaxf(maximum, scores[i]);
  }
  maximum = ReduceWarp(maximum, MaximumOf{});
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i) {
    const bool exists = lane + i * kWarpThreads < router.experts;
    if (router.score == RouterScore::kSigmoid) {
      scores[i] = exists ? 1.0F / (1.0F + expf(-scores[i])) : MinusInfinity();
    } else {
      scores[i] = exists ? expf(scores[i] - maximum) : MinusInfinity();
      sum += exists ? scores[i] : 0.0F;
    }
  }
  if (router.score == RouterScore::kSigmoid) return;
  sum = ReduceWarp(sum, SumOf{});
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i) scores[i] /= sum;
}

// A candidate of a lane, then of the warp.
struct Best {
  float value;
  int expert;
};
__device__ __forceinline__ bool Beats(const Best& a, const Best& b) {
  return a.value > b.value || (a.value == b.value && a.expert < b.expert);
}

// A warp to a token.
template <typename T>
__global__ void __launch_bounds__(kRouteThreads)
    RouteKernel(Router router, Rows<const T> logits, const float* choice_bias, int32_t* experts,
                float* weights) {
  const int64_t token = static_cast<int64_t>(blockIdx.x) * (kRouteThreads / kWarpThreads) +
                        threadIdx.x / kWarpThreads;
  if (token >= router.tokens) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  float scores[kLaneExperts];
  Score(router, logits[token], lane, scores);
  float keys[kLaneExperts];
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i) {
    const int expert = lane + i * kWarpThreads;
    const bool exists = expert < router.experts;
    keys[i] = exists && choice_bias != nullptr ? scores[i] + choice_bias[expert] : scores[i];
    if (!(keys[i] == keys[i])) keys[i] = MinusInfinity();
  }
  uint32_t taken = 0;  // bits of the lane's experts
  float own_weight = 0.0F;
  int32_t own_expert = 0;
  float sum = 0.0F;
  for (int choice = 0; choice < router.choices; ++choice) {
    Best best{.value = MinusInfinity(), .expert = std::numeric_limits<int>::max()};
    float score = 0.0F;
#pragma unroll
    for (int i = 0; i < kLaneExperts; ++i) {
      const Best candidate{.value = keys[i], .expert = lane + i * kWarpThreads};
      if (candidate.expert >= router.experts || (taken >> i & 1) != 0) continue;
      if (Beats(candidate, best)) {
        best = candidate;
        score = scores[i];
      }
    }
#pragma unroll
    for (int width = kWarpThreads / 2; width > 0; width /= 2) {
      const Best other{.value = __shfl_xor_sync(kWholeWarp, best.value, width),
                       .expert = __shfl_xor_sync(kWholeWarp, best.expert, width)};
      const float other_score = __shfl_xor_sync(kWholeWarp, score, width);
      if (Beats(other, best)) {
        best = other;
        score = other_score;
      }
    }
    if (best.expert % kWarpThreads == lane) taken |= 1U << (best.expert / kWarpThreads);
    if (choice == lane) {
      own_expert = best.expert;
      own_weight = score;
    }
    sum += score;
  }
  if (lane >= router.choices) return;
  const float divisor = router.normalise ? sum + kTiny : 1.0F;
  experts[token * router.choices + lane] = own_expert;
  weights[token * router.choices + lane] = own_weight / divisor * router.scale;
}

template <typename T>
__global__ void __launch_bounds__(kRouteThreads)
    RouteBackwardKernel(Router router, Rows<const T> logits, const int32_t* experts,
                        const float* grad_weights, Rows<T> grad_logits) {
  const int64_t token = static_cast<int64_t>(blockIdx.x) * (kRouteThreads / kWarpThreads) +
                        threadIdx.x / kWarpThreads;
  if (token >= router.tokens) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  float scores[kLaneExperts];
  Score(router, logits[token], lane, scores);
  float grads[kLaneExperts] = {};  // of the scores, where chosen
  uint32_t chosen = 0;
  float sum = 0.0F;    // of the lane's chosen scores
  float along = 0.0F;  // of them times their gradients
  for (int choice = 0; choice < router.choices; ++choice) {
    const int expert = experts[token * router.choices + choice];
    const float grad = grad_weights[token * router.choices + choice] * router.scale;
#pragma unroll
    for (int i = 0; i < kLaneExperts; ++i) {
      if (lane + i * kWarpThreads != expert) continue;
      grads[i] = grad;
      chosen |= 1U << i;
      sum += scores[i];
      along += scores[i] * grad;
    }
  }
  sum = ReduceWarp(sum, SumOf{});
  along = ReduceWarp(along, SumOf{});
  float mean = 0.0F;  // of the scores' gradients, by score
  if (router.normalise) {
    const float divisor = sum + kTiny;
    const float shift = along / divisor;
#pragma unroll
    for (int i = 0; i < kLaneExperts; ++i) {
      if ((chosen >> i & 1) != 0) grads[i] = (grads[i] - shift) / divisor;
    }
    mean = (along - shift * sum) / divisor;
  } else {
    mean = along;
  }
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i) {
    const int expert = lane + i * kWarpThreads;
    if (expert >= router.experts) continue;
    const float slope = router.score == RouterScore::kSigmoid
                            ? grads[i] * scores[i] * (1.0F - scores[i])
                            : scores[i] * (grads[i] - mean);
    grad_logits[token][expert] = FromFloat<T>(slope);
  }
}

// A block to an expert: it counts the assignments to lower ones, then places its own in order.
__global__ void __launch_bounds__(kGroupThreads)
    GroupKernel(const int32_t* experts, int64_t count, int32_t* offsets, int32_t* slots,
                int32_t* sources) {
  constexpr int kWarps = kGroupThreads / kWarpThreads;
  GANTRY_SHARED(int32_t, lower_slots, [kWarps]);
  GANTRY_SHARED(int32_t, warp_counts, [2][kWarps]);
  const auto expert = static_cast<int32_t>(blockIdx.x);
  int32_t lower = 0;
  for (int64_t i = threadIdx.x; i < count; i += kGroupThreads) {
    lower += experts[i] >= 0 && experts[i] < expert ? 1 : 0;
  }
  int32_t next = ReduceBlock<kGroupThreads>(lower, SumOf{}, lower_slots);
  if (threadIdx.x == 0) offsets[expert] = next;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const uint32_t lanes_below = (1U << threadIdx.x % kWarpThreads) - 1;
  int turn = 0;
  for (int64_t begin = 0; begin < count; begin += kGroupThreads, turn ^= 1) {
    const int64_t i = begin + threadIdx.x;
    const bool mine = i < count && experts[i] == expert;
    const uint32_t votes = __ballot_sync(kWholeWarp, mine ? 1 : 0);
    if (threadIdx.x % kWarpThreads == 0) warp_counts[turn][warp] = __popc(votes);
    __syncthreads();
    int32_t before = 0;
    int32_t all = 0;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) {
      before += other < warp ? warp_counts[turn][other] : 0;
      all += warp_counts[turn][other];
    }
    if (mine) {
      const int32_t slot = next + before + __popc(votes & lanes_below);
      slots[i] = slot;
      sources[slot] = static_cast<int32_t>(i);
    }
    next += all;
  }
  if (expert + 1 != static_cast<int32_t>(gridDim.x)) return;
  if (threadIdx.x == 0) offsets[expert + 1] = next;
  for (int64_t i = threadIdx.x; i < count; i += kGroupThreads) {
    if (experts[i] < 0) slots[i] = -1;
    if (i >= next) sources[i] = -1;
  }
}

Router RouterOf(const RouterOptions& options, const ConstMatrixView& logits) {
  GANTRY_CHECK(logits.cols > 0 && logits.cols <= kExpertsMax) << logits.cols << " experts";
  GANTRY_CHECK(options.choices > 0 && options.choices <= kWarpThreads &&
               options.choices <= logits.cols)
      << options.choices << " of " << logits.cols << " experts";
  return {.score = options.score,
          .choices = static_cast<int>(options.choices),
          .normalise = options.normalise,
          .scale = options.scale,
          .experts = static_cast<int>(logits.cols),
          .tokens = logits.rows};
}

LaunchShape RouteShape(int64_t tokens) {
  return {.grid = {.x = static_cast<uint32_t>(CeilDiv(tokens, kRouteThreads / kWarpThreads))},
          .block = {.x = kRouteThreads}};
}

}  // namespace

int Route(CudaStream stream, const RouteArgs& args) {
  const Router router = RouterOf(args.options, args.logits);
  const int64_t assignments = router.tokens * router.choices;
  GANTRY_CHECK(static_cast<int64_t>(args.experts.size()) == assignments &&
               static_cast<int64_t>(args.weights.size()) == assignments);
  GANTRY_CHECK(args.choice_bias.empty() ||
               static_cast<int64_t>(args.choice_bias.size()) == args.logits.cols);
  if (router.tokens == 0) return 0;
  const float* bias = args.choice_bias.empty() ? nullptr : args.choice_bias.data();
  int error = 0;
  WithDeviceElementType(args.logits.dtype, [&]<typename T>(T*) {
    error = GANTRY_LAUNCH(RouteKernel<T>, RouteShape(router.tokens), stream, router,
                          RowsOf<T>(args.logits), bias, args.experts.data(), args.weights.data());
  });
  return error;
}

int RouteBackward(CudaStream stream, const RouteBackwardArgs& args) {
  const Router router = RouterOf(args.options, args.logits);
  const int64_t assignments = router.tokens * router.choices;
  GANTRY_CHECK(static_cast<int64_t>(args.experts.size()) == assignments &&
               static_cast<int64_t>(args.grad_weights.size()) == assignments);
  CheckMatrix(args.grad_logits, ShapeOf(args.logits), args.logits.dtype, "grad_logits");
  if (router.tokens == 0) return 0;
  int error = 0;
  WithDeviceElementType(args.logits.dtype, [&]<typename T>(T*) {
    error = GANTRY_LAUNCH(RouteBackwardKernel<T>, RouteShape(router.tokens), stream, router,
                          RowsOf<T>(args.logits), args.experts.data(), args.grad_weights.data(),
                          RowsOf<T>(args.grad_logits));
  });
  return error;
}

int GroupByExpert(CudaStream stream, const GroupByExpertArgs& args) {
  GANTRY_CHECK_GE(args.offsets.size(), size_t{2});
  GANTRY_CHECK(args.slots.size() == args.experts.size() &&
               args.sources.size() == args.experts.size() &&
               args.experts.size() < static_cast<size_t>(std::numeric_limits<int32_t>::max()));
  const LaunchShape launch{.grid = {.x = static_cast<uint32_t>(args.offsets.size() - 1)},
                           .block = {.x = kGroupThreads}};
  return GANTRY_LAUNCH(GroupKernel, launch, stream, args.experts.data(),
                       static_cast<int64_t>(args.experts.size()), args.offsets.data(),
                       args.slots.data(), args.sources.data());
}

}  // namespace gantry::cuda
