// The device's elementwise kernels on the emulator: bit for bit what the host's compute.
#include "kernels/cuda/elementwise.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "base/testing/status_matchers.h"
#include "device/cuda/emulation/emulator.h"
#include "device/cuda/emulation/stream_runner.h"
#include "kernels/elementwise.h"
#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {
namespace {

// `size` elements at `offset` elements behind an aligned address, with guards on both sides.
class Buffer {
 public:
  Buffer(DType dtype, int64_t size, int64_t offset, uint64_t seed)
      : dtype_(dtype), size_(size), storage_(Bytes(size, offset), std::byte{0x5A}) {
    const auto address = reinterpret_cast<uintptr_t>(storage_.data());
    begin_ = kGuard + static_cast<int64_t>((kGuard - address % kGuard) % kGuard) +
             offset * SizeOf(dtype);
    const Random random({.seed = seed, .stream = 0});
    for (int64_t i = 0; i < size; ++i) {
      const auto at = static_cast<uint64_t>(i);
      StoreElement(dtype, storage_.data() + begin_, i,
                   static_cast<float>(random.Normal(at)) * 100.0F);
    }
  }
  VectorView view() { return {.data = storage_.data() + begin_, .dtype = dtype_, .size = size_}; }
  // The elements and the guards.
  std::vector<std::byte> bytes() const {
    const auto* from = storage_.data() + begin_ - kGuard;
    return {from, from + size_ * SizeOf(dtype_) + 2 * kGuard};
  }

 private:
  static constexpr int64_t kGuard = 64;  // also the alignment
  static size_t Bytes(int64_t size, int64_t offset) {
    return static_cast<size_t>(4 * (size + offset) + 3 * kGuard);
  }

  DType dtype_;
  int64_t size_;
  int64_t begin_;
  std::vector<std::byte> storage_;
};

using HostCall = std::function<void(const KernelContext&, VectorView, VectorView, VectorView)>;
using DeviceCall = std::function<int(CudaStream, VectorView, VectorView, VectorView)>;

void ExpectSame(const HostCall& host, const DeviceCall& device) {
  const auto team = ThreadTeam::Create({.threads = 1}).value();
  const KernelContext context{.team = team.get(), .matmul = nullptr};
  uint64_t seed = 0;
  for (const int64_t size : {0, 1, 7, 8, 9, 255, 2047, 2048, 2049, 40000}) {
    for (const int64_t offset : {0, 1, 4}) {
      for (int types = 0; types < 8; ++types) {
        SCOPED_TRACE(testing::Message()
                     << size << " elements at " << offset << ", types " << types);
        const auto type = [&](int bit) {
          return (types >> bit & 1) != 0 ? DType::kBF16 : DType::kF32;
        };
        ++seed;
        std::vector<std::byte> results[2];
        for (const bool on_device : {false, true}) {
          Buffer a(type(0), size, offset, 3 * seed);
          Buffer b(type(1), size, 0, 3 * seed + 1);
          Buffer out(type(2), size, offset, 3 * seed + 2);
          if (on_device) {
            ImmediateStream stream({.order = TurnOrder::kSeeded, .seed = seed, .find_races = true});
            EXPECT_EQ(device(&stream, a.view(), b.view(), out.view()), 0);
            EXPECT_THAT(stream.TakeStatus(), IsOk());
          } else {
            host(context, a.view(), b.view(), out.view());
          }
          results[on_device ? 1 : 0] = out.bytes();
        }
        ASSERT_EQ(results[0], results[1]);
      }
    }
  }
}

TEST(CudaElementwise, Add) {
  ExpectSame([](const KernelContext& context, VectorView a, VectorView b,
                VectorView out) { Add(context, {.a = a, .b = b, .sum = out}); },
             [](CudaStream stream, VectorView a, VectorView b, VectorView out) {
               return cuda::Add(stream, {.a = a, .b = b, .sum = out});
             });
}

TEST(CudaElementwise, Cast) {
  ExpectSame([](const KernelContext& context, VectorView a, VectorView,
                VectorView out) { Cast(context, {.from = a, .to = out}); },
             [](CudaStream stream, VectorView a, VectorView, VectorView out) {
               return cuda::Cast(stream, {.from = a, .to = out});
             });
}

TEST(CudaElementwise, ScaleAndZero) {
  ExpectSame([](const KernelContext& context, VectorView, VectorView,
                VectorView out) { Scale(context, out, 1.0F / 3); },
             [](CudaStream stream, VectorView, VectorView, VectorView out) {
               return cuda::Scale(stream, out, 1.0F / 3);
             });
  ExpectSame([](const KernelContext& context, VectorView, VectorView,
                VectorView out) { SetZero(context, out); },
             [](CudaStream stream, VectorView, VectorView, VectorView out) {
               return cuda::SetZero(stream, out);
             });
}

TEST(CudaElementwise, Axpy) {
  ExpectSame([](const KernelContext& context, VectorView a, VectorView,
                VectorView out) { Axpy(context, {.alpha = 0.3F, .x = a, .y = out}); },
             [](CudaStream stream, VectorView a, VectorView, VectorView out) {
               return cuda::Axpy(stream, {.alpha = 0.3F, .x = a, .y = out});
             });
}

// The host's kernels have no f16: expected are its conversions, element by element.
TEST(CudaElementwise, HalfPrecision) {
  constexpr int64_t kSize = 2051;
  for (const int64_t offset : {0, 1}) {
    Buffer from(DType::kF32, kSize, offset, 1);
    Buffer half(DType::kF16, kSize, offset, 2);
    Buffer wide(DType::kF32, kSize, offset, 3);
    Buffer zero(DType::kF16, kSize, offset, 4);
    ImmediateStream stream({.order = TurnOrder::kDescending, .find_races = true});
    EXPECT_EQ(cuda::Cast(&stream, {.from = from.view(), .to = half.view()}), 0);
    EXPECT_EQ(cuda::Cast(&stream, {.from = half.view(), .to = wide.view()}), 0);
    EXPECT_EQ(cuda::Scale(&stream, half.view(), 1.0F / 3), 0);
    EXPECT_EQ(cuda::SetZero(&stream, zero.view()), 0);
    EXPECT_THAT(stream.TakeStatus(), IsOk());
    for (int64_t i = 0; i < kSize; ++i) {
      const auto rounded = static_cast<float>(Float16(from.view().As<float>()[i]));
      ASSERT_EQ(wide.view().As<float>()[i], rounded) << i;
      ASSERT_EQ(half.view().As<Float16>()[i], Float16(rounded * (1.0F / 3))) << i;
      ASSERT_EQ(zero.view().As<Float16>()[i].bits, 0) << i;
    }
  }
}

}  // namespace
}  // namespace gantry
