// Built with -fmad=false: gradients are rounded as on the host.
#include <cstdint>

#include "base/bytes.h"
#include "base/check.h"
#include "device/cuda/device_code.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"
#include "kernels/cross_entropy_head.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/exp.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rowwise.cuh"
#include "kernels/cuda/token_log_probabilities.h"
#include "kernels/views.h"

namespace gantry::cuda {
namespace {

constexpr int kBlockThreads = 256;
constexpr int kWarps = kBlockThreads / kWarpThreads;

__device__ __forceinline__ float MinusInfinity() { return __uint_as_float(0xff800000U); }

// What differences are taken to: the maximum, or 0 while that is minus infinity.
__device__ __forceinline__ float BaseOf(float maximum) {
  return maximum == MinusInfinity() ? 0.0F : maximum;
}

// Of float terms, one thread's or more.
struct Partial {
  float maximum;
  float sum;
};

__device__ __forceinline__ Partial Merge(const Partial& a, const Partial& b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  const float base = BaseOf(maximum);
  return {.maximum = maximum,
          .sum = a.sum * HostExp(a.maximum - base) + b.sum * HostExp(b.maximum - base)};
}

template <int kCount>
__device__ __forceinline__ void AddTo(Partial& partial, const float (&logits)[kCount]) {
  float maximum = partial.maximum;
#pragma unroll
  for (int i = 0; i < kCount; ++i) maximum = fmaxf(maximum, logits[i]);
  const float base = BaseOf(maximum);
  float sum = partial.sum * HostExp(partial.maximum - base);
#pragma unroll
  for (int i = 0; i < kCount; ++i) sum += HostExp(logits[i] - base);
  partial = {.maximum = maximum, .sum = sum};
}

template <typename T>
struct Block {
  int64_t words;
  int64_t first_word;
  Rows<const T> logits;
  Accumulate accumulate;
  const int32_t* targets;
  RunningLogits* running;
  float* target_logits;
};

// A block of threads to a token.
template <typename T, int kCount>
__global__ void __launch_bounds__(kBlockThreads) AddLogitsKernel(Block<T> block) {
  GANTRY_SHARED(Partial, partials, [kWarps]);
  const int64_t token = blockIdx.x;
  const T* logits = block.logits[token];
  Partial own{.maximum = MinusInfinity(), .sum = 0.0F};
  const int64_t packs = block.words / kCount;
#pragma unroll 2
  for (int64_t pack = threadIdx.x; pack < packs; pack += kBlockThreads) {
    float values[kCount];
    LoadPack<T, kCount>(logits + pack * kCount, values);
    AddTo<kCount>(own, values);
  }
  if (const int64_t rest = packs * kCount + threadIdx.x; rest < block.words) {
    const float value[1] = {ToFloat(logits[rest])};
    AddTo<1>(own, value);
  }
#pragma unroll
  for (int width = kWarpThreads / 2; width > 0; width /= 2) {
    const Partial other{.maximum = __shfl_xor_sync(kWholeWarp, own.maximum, width),
                        .sum = __shfl_xor_sync(kWholeWarp, own.sum, width)};
    // Both lanes of a pair merge in one order: the sum is the same in all.
    own = (threadIdx.x & static_cast<unsigned>(width)) == 0 ? Merge(own, other) : Merge(other, own);
  }
  if (threadIdx.x % kWarpThreads == 0) partials[threadIdx.x / kWarpThreads] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kWarps; ++warp) own = Merge(own, partials[warp]);
  RunningLogits& running = block.running[token];
  if (block.accumulate == Accumulate::kOverwrite) {
    running = {.sum = static_cast<double>(own.sum), .maximum = own.maximum};
  } else {
    const float maximum = fmaxf(running.maximum, own.maximum);
    const float base = BaseOf(maximum);
    const double sum =
        running.sum * static_cast<double>(HostExp(running.maximum - base)) +
        static_cast<double>(own.sum) * static_cast<double>(HostExp(own.maximum - base));
    running = {.sum = sum, .maximum = maximum};
  }
  const int32_t target = block.targets[token];
  const int64_t column = target - block.first_word;
  if (target != kIgnoreTarget && column >= 0 && column < block.words) {
    block.target_logits[token] = ToFloat(logits[column]);
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    FinishKernel(int64_t tokens, const int32_t* targets, const RunningLogits* running,
                 float* log_probabilities, float* log_sum_exps) {
  const int64_t token = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (token >= tokens) return;
  const double log_sum_exp = static_cast<double>(running[token].maximum) + log(running[token].sum);
  log_sum_exps[token] = static_cast<float>(log_sum_exp);
  const double logit = static_cast<double>(log_probabilities[token]);
  log_probabilities[token] =
      targets[token] == kIgnoreTarget ? 0.0F : static_cast<float>(logit - log_sum_exp);
}

template <typename T, typename Grad>
struct Gradients {
  int64_t tokens;
  int64_t words;
  int64_t first_word;
  Rows<const T> logits;
  Rows<Grad> grad_logits;
  const int32_t* targets;
  const float* log_sum_exp;
  const float* grad;
};

template <typename T, typename Grad, int kPack>
__global__ void __launch_bounds__(kRowwiseThreads) GradientsKernel(Gradients<T, Grad> args) {
  ForRowsAndPacks<kPack>(args.tokens, args.words, [&]<int kCount>(int64_t token, int64_t col) {
    const int32_t target = args.targets[token];
    const float grad = args.grad[token];
    float values[kCount] = {};
    if (target != kIgnoreTarget && grad != 0.0F) {
      const float log_sum_exp = args.log_sum_exp[token];
      LoadPack<T, kCount>(args.logits[token] + col, values);
      const int64_t hit = target - args.first_word - col;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        values[i] = -grad * HostExp(values[i] - log_sum_exp);
        if (i == hit) values[i] += grad;
      }
    }
    StorePack<Grad, kCount>(args.grad_logits[token] + col, values);
  });
}

}  // namespace

int AddLogits(CudaStream stream, const AddLogitsArgs& args) {
  const int64_t tokens = args.logits.rows;
  GANTRY_CHECK(static_cast<int64_t>(args.targets.size()) == tokens &&
               static_cast<int64_t>(args.running.size()) == tokens &&
               static_cast<int64_t>(args.target_logits.size()) == tokens);
  if (tokens == 0) return 0;
  const LaunchShape launch{.grid = {.x = static_cast<uint32_t>(tokens)},
                           .block = {.x = kBlockThreads}};
  int error = 0;
  WithDeviceElementType(args.logits.dtype, [&]<typename T>(T*) {
    const Block<T> block{.words = args.logits.cols,
                         .first_word = args.first_word,
                         .logits = RowsOf<T>(args.logits),
                         .accumulate = args.accumulate,
                         .targets = args.targets.data(),
                         .running = args.running.data(),
                         .target_logits = args.target_logits.data()};
    error = PacksOfEight(args.logits)
                ? GANTRY_LAUNCH((AddLogitsKernel<T, 8>), launch, stream, block)
                : GANTRY_LAUNCH((AddLogitsKernel<T, 1>), launch, stream, block);
  });
  return error;
}

int FinishLogProbabilities(CudaStream stream, const FinishLogProbabilitiesArgs& args) {
  const auto tokens = static_cast<int64_t>(args.targets.size());
  GANTRY_CHECK(args.running.size() == args.targets.size() &&
               args.log_probabilities.size() == args.targets.size() &&
               args.log_sum_exp.size() == args.targets.size());
  if (tokens == 0) return 0;
  const LaunchShape launch{.grid = {.x = static_cast<uint32_t>(CeilDiv(tokens, kBlockThreads))},
                           .block = {.x = kBlockThreads}};
  return GANTRY_LAUNCH(FinishKernel, launch, stream, tokens, args.targets.data(),
                       args.running.data(), args.log_probabilities.data(), args.log_sum_exp.data());
}

int LogitsToGradients(CudaStream stream, const LogitsToGradientsArgs& args) {
  const MatrixShape shape = ShapeOf(args.logits);
  CheckMatrix(args.grad_logits, shape, args.grad_logits.dtype, "grad_logits");
  GANTRY_CHECK(static_cast<int64_t>(args.targets.size()) == shape.rows &&
               static_cast<int64_t>(args.log_sum_exp.size()) == shape.rows &&
               static_cast<int64_t>(args.grad_log_probabilities.size()) == shape.rows);
  if (shape.rows == 0 || shape.cols == 0) return 0;
  const bool aligned = PacksOfEight(args.logits) && PacksOfEight(args.grad_logits);
  const LaunchShape launch = RowwiseShape(shape.rows, shape.cols, aligned ? 8 : 1);
  int error = 0;
  WithDeviceElementType(args.logits.dtype, [&]<typename T>(T*) {
    WithDeviceElementType(args.grad_logits.dtype, [&]<typename Grad>(Grad*) {
      const Gradients<T, Grad> gradients{.tokens = shape.rows,
                                         .words = shape.cols,
                                         .first_word = args.first_word,
                                         .logits = RowsOf<T>(args.logits),
                                         .grad_logits = RowsOf<Grad>(args.grad_logits),
                                         .targets = args.targets.data(),
                                         .log_sum_exp = args.log_sum_exp.data(),
                                         .grad = args.grad_log_probabilities.data()};
      error = aligned ? GANTRY_LAUNCH((GradientsKernel<T, Grad, 8>), launch, stream, gradients)
                      : GANTRY_LAUNCH((GradientsKernel<T, Grad, 1>), launch, stream, gradients);
    });
  });
  return error;
}

}  // namespace gantry::cuda
