// The emulator runs what CUDA defines, and reports what CUDA leaves undefined. Kernels here are
// plain functions over the names of device_code.h; those with a mistake must be found out.
#include "device/cuda/emulation/emulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/testing/status_matchers.h"
#include "device/cuda/emulation/device_code.h"
#include "device/cuda/emulation/shared_memory.h"
#include "device/cuda/launch_shape.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kWarp = 0xffffffff;

std::vector<EmulatorOptions> AllOptions() {
  std::vector<EmulatorOptions> all;
  for (const bool find_races : {false, true}) {
    all.push_back({.order = TurnOrder::kAscending, .find_races = find_races});
    all.push_back({.order = TurnOrder::kDescending, .find_races = find_races});
    for (uint64_t seed = 0; seed < 5; ++seed) {
      all.push_back({.order = TurnOrder::kSeeded, .seed = seed, .find_races = find_races});
    }
  }
  return all;
}

LaunchShape Shape(uint32_t blocks, uint32_t threads, int64_t shared_bytes = 0) {
  return {.grid = {.x = blocks}, .block = {.x = threads}, .shared_bytes = shared_bytes};
}

absl::Status RunOnce(const LaunchShape& shape, const std::function<void()>& kernel,
                     const EmulatorOptions& options = {}) {
  Emulator emulator(options);
  return emulator.Run("Kernel", shape, kernel);
}

TEST(Emulator, EveryThreadRunsOnceWithItsIndices) {
  const LaunchShape shape{.grid = {.x = 3, .y = 2, .z = 2}, .block = {.x = 5, .y = 3, .z = 2}};
  for (const EmulatorOptions& options : AllOptions()) {
    std::vector<int> runs(static_cast<size_t>(shape.grid.count() * shape.block.count()));
    ASSERT_THAT(RunOnce(
                    shape,
                    [&] {
                      EXPECT_EQ(gridDim, shape.grid);
                      EXPECT_EQ(blockDim, shape.block);
                      const size_t block =
                          blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
                      const size_t thread =
                          threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
                      ++runs[block * 30 + thread];
                    },
                    options),
                IsOk());
    EXPECT_THAT(runs, ::testing::Each(1));
  }
}

// Each block sums its part by halves.
void SumKernel(const int64_t* values, int64_t* sums) {
  GANTRY_SHARED(int64_t, part, [128]);
  const uint32_t t = threadIdx.x;
  part[t] = values[blockIdx.x * blockDim.x + t];
  __syncthreads();
  for (uint32_t half = blockDim.x / 2; half > 0; half /= 2) {
    if (t < half) part[t] += part[t + half];
    __syncthreads();
  }
  if (t == 0) sums[blockIdx.x] = part[0];
}

TEST(Emulator, BarriersOrderSharedMemory) {
  std::vector<int64_t> values(4 * 128);
  std::iota(values.begin(), values.end(), 0);
  for (const EmulatorOptions& options : AllOptions()) {
    std::array<int64_t, 4> sums{};
    ASSERT_THAT(
        RunOnce(Shape(4, 128), [&] { SumKernel(values.data(), sums.data()); }, options), IsOk());
    EXPECT_THAT(sums, ::testing::ElementsAre(8128, 24512, 40896, 57280));
  }
}

// The same without the barrier in the loop.
void RacingSumKernel(const int64_t* values, int64_t* sums) {
  GANTRY_SHARED(int64_t, part, [128]);
  const uint32_t t = threadIdx.x;
  part[t] = values[t];
  __syncthreads();
  for (uint32_t half = blockDim.x / 2; half > 0; half /= 2) {
    if (t < half) part[t] += part[t + half];
  }
  if (t == 0) sums[0] = part[0];
}

TEST(Emulator, AMissingBarrierChangesResults) {
  const std::vector<int64_t> values(128, 1);
  const auto run = [&](TurnOrder order, bool find_races) {
    int64_t sum = 0;
    EXPECT_THAT(RunOnce(Shape(1, 128), [&] { RacingSumKernel(values.data(), &sum); },
                        {.order = order, .find_races = find_races}),
                IsOk());
    return sum;
  };
  // By chance right: the threads that are read from have their turn before.
  EXPECT_EQ(run(TurnOrder::kDescending, false), 128);
  EXPECT_NE(run(TurnOrder::kAscending, false), 128);
  EXPECT_NE(run(TurnOrder::kDescending, true), 128);
}

TEST(Emulator, ABarrierBeforeWritingAgainIsMissed) {
  // Reads the neighbour's value while the neighbour may already write its next one.
  const auto kernel = [](int* out) {
    GANTRY_SHARED(int, ring, [64]);
    const uint32_t t = threadIdx.x;
    ring[t] = static_cast<int>(t);
    __syncthreads();
    out[t] = ring[(t + 1) % 64];
    ring[t] = -1;
  };
  const auto run = [&](TurnOrder order, bool find_races) {
    std::array<int, 64> out{};
    EXPECT_THAT(RunOnce(Shape(1, 64), [&] { kernel(out.data()); },
                        {.order = order, .find_races = find_races}),
                IsOk());
    return out;
  };
  EXPECT_NE(run(TurnOrder::kAscending, true), run(TurnOrder::kDescending, true));
}

TEST(Emulator, TwoWritersOfAByteAreAnError) {
  const auto all_write = [] {
    GANTRY_SHARED(int, flag, [1]);
    flag[0] = 1;  // the same value, but nobody knows when
  };
  EXPECT_THAT(RunOnce(Shape(1, 64), all_write), IsOk());
  const absl::Status status = RunOnce(Shape(1, 64), all_write, {.find_races = true});
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal));
  EXPECT_EQ(status.message(),
            "Kernel, block (0, 0, 0): thread 1 writes byte 0 of flag, which thread 0 wrote since "
            "the last barrier");
}

TEST(Emulator, ABarrierOfAWarpShowsItsWritesToTheWarp) {
  const auto kernel = [](int* out, bool sync) {
    GANTRY_SHARED(int, values, [64]);
    const uint32_t t = threadIdx.x;
    values[t] = static_cast<int>(t);
    if (sync) __syncwarp();
    out[t] = values[t ^ 1];
  };
  for (const EmulatorOptions& options : AllOptions()) {
    std::array<int, 64> out{};
    ASSERT_THAT(RunOnce(Shape(1, 64), [&] { kernel(out.data(), true); }, options), IsOk());
    for (int t = 0; t < 64; ++t) EXPECT_EQ(out[static_cast<size_t>(t)], t ^ 1);
  }
  std::array<int, 64> out{};
  ASSERT_THAT(RunOnce(Shape(1, 64), [&] { kernel(out.data(), false); }, {.find_races = true}),
              IsOk());
  EXPECT_NE(out[1], 0);
  // Another warp needs the block's barrier.
  const auto across = [](int* out) {
    GANTRY_SHARED(int, values, [64]);
    const uint32_t t = threadIdx.x;
    values[t] = static_cast<int>(t);
    __syncwarp();
    out[t] = values[t ^ 32];
  };
  ASSERT_THAT(RunOnce(Shape(1, 64), [&] { across(out.data()); }, {.find_races = true}), IsOk());
  EXPECT_NE(out[32], 0);
}

TEST(Emulator, Shuffles) {
  for (const EmulatorOptions& options : AllOptions()) {
    std::array<std::array<int, 64>, 6> out{};
    const auto kernel = [&] {
      const auto t = static_cast<size_t>(threadIdx.x);
      const int value = static_cast<int>(t) * 10;
      out[0][t] = __shfl_xor_sync(kWarp, value, 5);
      out[1][t] = __shfl_down_sync(kWarp, value, 3);
      out[2][t] = __shfl_up_sync(kWarp, value, 3);
      out[3][t] = __shfl_sync(kWarp, value, 7);
      out[4][t] = __shfl_down_sync(kWarp, value, 3, 8);
      out[5][t] = __shfl_sync(kWarp, value, 9, 8);
    };
    ASSERT_THAT(RunOnce(Shape(1, 64), kernel, options), IsOk());
    for (size_t t = 0; t < 64; ++t) {
      const size_t lane = t % 32;
      const size_t warp = t - lane;
      const auto value = [](size_t thread) { return static_cast<int>(thread) * 10; };
      EXPECT_EQ(out[0][t], value(warp + (lane ^ 5)));
      EXPECT_EQ(out[1][t], value(lane + 3 < 32 ? t + 3 : t));
      EXPECT_EQ(out[2][t], value(lane >= 3 ? t - 3 : t));
      EXPECT_EQ(out[3][t], value(warp + 7));
      EXPECT_EQ(out[4][t], value(t % 8 + 3 < 8 ? t + 3 : t));
      EXPECT_EQ(out[5][t], value(t / 8 * 8 + 1));
    }
  }
}

TEST(Emulator, HalvesOfAWarpMeetApart) {
  std::array<int, 32> out{};
  const auto kernel = [&] {
    const uint32_t t = threadIdx.x;
    const uint32_t half = t < 16 ? 0x0000ffff : 0xffff0000;
    int sum = 1;
    // The halves go round differently often.
    for (uint32_t i = 0; i < (t < 16 ? 4U : 3U); ++i) sum += __shfl_xor_sync(half, sum, 1 << i);
    out[t] = sum;
  };
  for (const EmulatorOptions& options : AllOptions()) {
    ASSERT_THAT(RunOnce(Shape(1, 32), kernel, options), IsOk());
    for (size_t t = 0; t < 32; ++t) EXPECT_EQ(out[t], t < 16 ? 16 : 8);
  }
}

TEST(Emulator, VotesAndTheLastWarpOfAnOddBlock) {
  for (const EmulatorOptions& options : AllOptions()) {
    std::vector<uint32_t> votes(45);
    std::vector<int> any(45);
    std::vector<int> all(45);
    std::vector<int> count(45);
    const auto kernel = [&] {
      const auto t = static_cast<size_t>(threadIdx.x);
      votes[t] = __ballot_sync(kWarp, t % 3 == 0 ? 1 : 0);
      any[t] = __any_sync(kWarp, t == 40 ? 1 : 0);
      all[t] = __all_sync(kWarp, t != 40 ? 1 : 0);
      count[t] = __syncthreads_count(t % 2 == 0 ? 1 : 0);
    };
    ASSERT_THAT(RunOnce(Shape(1, 45), kernel, options), IsOk());
    EXPECT_EQ(votes[0], 0x49249249U);
    EXPECT_EQ(votes[44], 0b0010010010010U);  // threads 33, 36, 39 and 42
    EXPECT_EQ(any[0], 0);
    EXPECT_EQ(any[44], 1);
    EXPECT_EQ(all[0], 1);
    EXPECT_EQ(all[44], 0);
    EXPECT_THAT(count, ::testing::Each(23));
  }
}

TEST(Emulator, Atomics) {
  for (const EmulatorOptions& options : AllOptions()) {
    int64_t global = 0;
    std::array<int, 3> shared_results{};
    const auto kernel = [&] {
      GANTRY_SHARED(int, counters, [3]);
      if (threadIdx.x < 3) counters[threadIdx.x] = 0;
      __syncthreads();
      atomicAdd(&counters[threadIdx.x % 2], 2);
      atomicMax(&counters[2], static_cast<int>(threadIdx.x));
      atomicAdd(&global, int64_t{1});
      __syncthreads();
      if (threadIdx.x < 3) shared_results[threadIdx.x] = counters[threadIdx.x];
    };
    ASSERT_THAT(RunOnce(Shape(3, 96), kernel, options), IsOk());
    EXPECT_EQ(global, 288);
    EXPECT_THAT(shared_results, ::testing::ElementsAre(96, 96, 95));
  }
  // Reading without a barrier what others still count is a mistake.
  std::array<int, 64> seen{};
  const auto early = [&] {
    GANTRY_SHARED(int, counter, [1]);
    if (threadIdx.x == 0) counter[0] = 0;
    __syncthreads();
    atomicAdd(&counter[0], 1);
    seen[threadIdx.x] = counter[0];
  };
  ASSERT_THAT(RunOnce(Shape(1, 64), early, {.find_races = true}), IsOk());
  EXPECT_NE(seen[63], 64);
}

TEST(Emulator, DynamicSharedMemoryBeginsAsNoNumber) {
  int64_t numbers = 0;
  const auto kernel = [&] {
    GANTRY_DYNAMIC_SHARED(bytes);
    auto* values = reinterpret_cast<float*>(bytes);
    if (!std::isnan(values[threadIdx.x])) ++numbers;
    __syncthreads();
    values[threadIdx.x] = 1.0F;
  };
  // Nor does a block find what the block before left.
  ASSERT_THAT(RunOnce(Shape(5, 64, 64 * sizeof(float)), kernel), IsOk());
  EXPECT_EQ(numbers, 0);
}

TEST(Emulator, ThreadsThatEndedAreNotWaitedFor) {
  int passed = 0;
  const auto kernel = [&] {
    if (threadIdx.x >= 40) return;
    __syncthreads();
    ++passed;
  };
  ASSERT_THAT(RunOnce(Shape(2, 64), kernel), IsOk());
  EXPECT_EQ(passed, 80);
}

TEST(Emulator, MeetingsThatNeverHappenAreErrors) {
  struct Case {
    std::function<void()> kernel;
    std::string error;
  };
  const Case cases[] = {
      {[] {
         if (threadIdx.x < 32) __syncwarp();
         if (threadIdx.x == 5) return;
         if (threadIdx.x < 32) __shfl_xor_sync(kWarp, 1, 1);
       },
       "stuck: thread 0 waits in __shfl_xor_sync; 33 of 64 threads have ended"},
      {[] {
         if (threadIdx.x < 16) {
           __syncthreads();
         } else {
           __ballot_sync(kWarp, 1);
         }
       },
       "stuck: thread 0 waits in __syncthreads, thread 16 waits in __ballot_sync; 32 of 64 "
       "threads have ended"},
      {[] {
         if (threadIdx.x % 2 == 0) {
           __shfl_xor_sync(kWarp, 1, 2);
         } else {
           __ballot_sync(kWarp, 1);
         }
       },
       "thread 1 calls __ballot_sync where lane 0 calls __shfl_xor_sync"},
      {[] { __shfl_xor_sync(0x0000000fU, 1, 1); },
       "thread 4 calls __shfl_xor_sync with a mask that lacks its lane"},
      {[] {
         if (threadIdx.x < 4) __shfl_xor_sync(0x0000000fU, 1, 16);
       },
       "thread 3 shuffles from a lane outside the mask"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(RunOnce(Shape(1, 64), c.kernel),
                StatusIs(absl::StatusCode::kInternal, "Kernel, block (0, 0, 0): " + c.error));
  }
}

TEST(Emulator, RunsAgainAfterAnError) {
  Emulator emulator({.find_races = true});
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(emulator.Run("Bad", Shape(1, 64),
                             [] {
                               if (threadIdx.x > 3) __shfl_xor_sync(kWarp, 1, 1);
                             }),
                StatusIs(absl::StatusCode::kInternal));
    int runs = 0;
    EXPECT_THAT(emulator.Run("Good", Shape(2, 64),
                             [&] {
                               __syncthreads();
                               ++runs;
                             }),
                IsOk());
    EXPECT_EQ(runs, 128);
  }
}

TEST(Emulator, WhatNoGpuTakes) {
  const auto nothing = [] {};
  for (const LaunchShape& shape :
       {Shape(0, 1), Shape(1, 0), Shape(1, 1025), Shape(1, 1, -1), Shape(1, 1, kSharedBytesMax + 1),
        LaunchShape{.grid = {.x = 1, .y = 65536}, .block = {}},
        LaunchShape{.grid = {}, .block = {.x = 1, .y = 1, .z = 65}}}) {
    EXPECT_THAT(RunOnce(shape, nothing), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(RunOnce(Shape(1, 1024, kSharedBytesMax), nothing), IsOk());
  const absl::Status status = RunOnce(Shape(1, 1, kSharedBytesMax), [] {
    GANTRY_SHARED(char, more, [1]);
    more[0] = 1;
  });
  EXPECT_THAT(status.message(), HasSubstr("needs more shared memory than a block has"));
}

TEST(EmulatorDeathTest, BehindAnArrayIsAnError) {
  const auto kernel = [] {
    GANTRY_SHARED(int, first, [8]);
    GANTRY_SHARED(int, second, [8]);
    const int* from = first;
    second[0] = from[threadIdx.x];
  };
#if defined(GANTRY_ASAN)
  EXPECT_DEATH(static_cast<void>(RunOnce(Shape(1, 9), kernel)), "use-after-poison");
#endif
  EXPECT_THAT(RunOnce(Shape(1, 8), kernel), IsOk());
}

}  // namespace
}  // namespace gantry
