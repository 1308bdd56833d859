// The part of CUDA C++ that our kernels are written in, for a plain C++ compiler: what nvcc knows
// by itself, under the same names, on the emulator. Included by .cu files only, through
// device/cuda/device_code.h.
#ifndef GANTRY_DEVICE_CUDA_EMULATION_DEVICE_CODE_H_
#define GANTRY_DEVICE_CUDA_EMULATION_DEVICE_CODE_H_

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "device/cuda/emulation/emulator.h"
#include "device/cuda/launch_shape.h"

// NOLINTBEGIN: these are CUDA's names.
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __launch_bounds__(...)

#define threadIdx (::gantry::Emulator::Current().thread_index())
#define blockIdx (::gantry::Emulator::Current().block_index())
#define blockDim (::gantry::Emulator::Current().shape().block)
#define gridDim (::gantry::Emulator::Current().shape().grid)
#define warpSize (::gantry::Emulator::kWarpThreads)

// GANTRY_SHARED(float, tile, [32][33]) declares what `__shared__ float tile[32][33]` does.
#define GANTRY_SHARED(type, name, extents)                                                       \
  static const char name##_key = 0;                                                              \
  using name##_type = std::remove_reference_t<decltype(*static_cast<type(*) extents>(nullptr))>; \
  name##_type& name = *static_cast<name##_type*>(                                                \
      ::gantry::emulation::SharedVariable(&name##_key, #name, sizeof(name##_type), alignof(type)))

// std::byte* of the launch's dynamic shared memory, aligned to 1024 bytes.
#define GANTRY_DYNAMIC_SHARED(name) \
  std::byte* const name = ::gantry::Emulator::Current().shared().dynamic()

namespace gantry::emulation {

inline void* SharedVariable(const void* key, const char* name, size_t bytes, size_t alignment) {
  Emulator& emulator = Emulator::Current();
  void* at = emulator.shared().Variable(key, name, static_cast<int64_t>(bytes),
                                        static_cast<int64_t>(alignment));
  if (at == nullptr) emulator.Fail("needs more shared memory than a block has");
  return at;
}

template <typename T>
T ValueOf(const Emulator::Exchanged& exchanged, uint32_t lane) {
  T value;
  std::memcpy(&value, exchanged.lanes[lane].data(), sizeof(T));
  return value;
}

// What lane `source(own lane)` gave; its own where that is no lane of the same section of `width`.
template <typename T, typename Source>
T Shuffle(const char* what, uint32_t mask, T value, int width, const Source& source) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  Emulator& emulator = Emulator::Current();
  const int lane = emulator.lane();
  const auto& all = emulator.Exchange(what, mask, std::as_bytes(std::span(&value, 1)));
  const int section = lane / width * width;
  const int from = source(lane, section);
  if (from < section || from >= section + width) return value;
  if ((mask >> from & 1) == 0) emulator.Fail("shuffles from a lane outside the mask");
  return ValueOf<T>(all, static_cast<uint32_t>(from));
}

// Reads, changes and writes a value in one step, in shared or in global memory. Returns the old.
template <typename T, typename Change>
T Atomic(T* address, const Change& change) {
  SharedMemory& shared = Emulator::Current().shared();
  if (shared.BeforeAtomic(address, sizeof(T))) {
    const T old = *address;
    *address = change(old);
    shared.AfterAtomic(address, sizeof(T));
    return old;
  }
  std::atomic_ref<T> global(*address);
  T old = global.load(std::memory_order_relaxed);
  while (!global.compare_exchange_weak(old, change(old), std::memory_order_relaxed)) {
  }
  return old;
}

}  // namespace gantry::emulation

inline void __syncthreads() { gantry::Emulator::Current().SyncThreads("__syncthreads", 0); }
inline int __syncthreads_count(int predicate) {
  return static_cast<int>(
      gantry::Emulator::Current().SyncThreads("__syncthreads_count", predicate != 0 ? 1 : 0));
}
inline int __syncthreads_or(int predicate) {
  return gantry::Emulator::Current().SyncThreads("__syncthreads_or", predicate != 0 ? 1 : 0) != 0;
}
inline int __syncthreads_and(int predicate) {
  return gantry::Emulator::Current().SyncThreads("__syncthreads_and", predicate != 0 ? 0 : 1) == 0;
}
inline void __syncwarp(uint32_t mask = 0xffffffff) { gantry::Emulator::Current().SyncWarp(mask); }
inline void __threadfence() {}
inline void __threadfence_block() {}

template <typename T>
T __shfl_sync(uint32_t mask, T value, int source, int width = 32) {
  return gantry::emulation::Shuffle("__shfl_sync", mask, value, width, [&](int, int section) {
    return section + (source & (width - 1));
  });
}
template <typename T>
T __shfl_xor_sync(uint32_t mask, T value, int lane_mask, int width = 32) {
  return gantry::emulation::Shuffle("__shfl_xor_sync", mask, value, width,
                                    [&](int lane, int) { return lane ^ lane_mask; });
}
template <typename T>
T __shfl_down_sync(uint32_t mask, T value, unsigned delta, int width = 32) {
  return gantry::emulation::Shuffle("__shfl_down_sync", mask, value, width,
                                    [&](int lane, int) { return lane + static_cast<int>(delta); });
}
template <typename T>
T __shfl_up_sync(uint32_t mask, T value, unsigned delta, int width = 32) {
  return gantry::emulation::Shuffle("__shfl_up_sync", mask, value, width,
                                    [&](int lane, int) { return lane - static_cast<int>(delta); });
}
inline uint32_t __ballot_sync(uint32_t mask, int predicate) {
  const char vote = predicate != 0 ? 1 : 0;
  const auto& all = gantry::Emulator::Current().Exchange("__ballot_sync", mask,
                                                         std::as_bytes(std::span(&vote, 1)));
  uint32_t votes = 0;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0 && all.lanes[lane][0] != std::byte{0}) votes |= 1U << lane;
  }
  return votes;
}
inline int __any_sync(uint32_t mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(uint32_t mask, int predicate) {
  return __ballot_sync(mask, predicate == 0 ? 1 : 0) == 0;
}

template <typename T>
T atomicAdd(T* address, T value) {
  return gantry::emulation::Atomic(address, [&](T old) { return static_cast<T>(old + value); });
}
template <typename T>
T atomicMax(T* address, T value) {
  return gantry::emulation::Atomic(address, [&](T old) { return old < value ? value : old; });
}
template <typename T>
T atomicMin(T* address, T value) {
  return gantry::emulation::Atomic(address, [&](T old) { return value < old ? value : old; });
}
template <typename T>
T atomicOr(T* address, T value) {
  return gantry::emulation::Atomic(address, [&](T old) { return old | value; });
}
template <typename T>
T atomicExch(T* address, T value) {
  return gantry::emulation::Atomic(address, [&](T) { return value; });
}
template <typename T>
T atomicCAS(T* address, T compare, T value) {
  return gantry::emulation::Atomic(address, [&](T old) { return old == compare ? value : old; });
}

template <typename T>
T __ldg(const T* address) {
  return *address;
}
inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline float rsqrtf(float value) { return 1.0F / std::sqrt(value); }
inline float __expf(float value) { return std::exp(value); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline double __longlong_as_double(int64_t bits) { return std::bit_cast<double>(bits); }
inline int __popc(uint32_t bits) { return std::popcount(bits); }
inline int __ffs(uint32_t bits) { return bits == 0 ? 0 : std::countr_zero(bits) + 1; }
inline int __clz(uint32_t bits) { return std::countl_zero(bits); }
// NOLINTEND

#endif  // GANTRY_DEVICE_CUDA_EMULATION_DEVICE_CODE_H_
