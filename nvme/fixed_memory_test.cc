#include "nvme/fixed_memory.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gtest/gtest.h"

namespace gantry {
namespace {

constexpr int64_t kMax = FixedMemory::kSliceBytesMax;

// Addresses only: nothing is there.
std::span<std::byte> At(int64_t address, int64_t size) {
  return {reinterpret_cast<std::byte*>(address), static_cast<size_t>(size)};
}

TEST(FixedMemoryTest, RegionsAreCutAtTheKernelsLimit) {
  const std::vector<std::span<std::byte>> regions = {At(1 << 20, 0), At(kMax, kMax),
                                                     At(10 * kMax, 2 * kMax + 1)};
  const FixedMemory memory(regions);
  ASSERT_EQ(memory.slices().size(), 4U);
  EXPECT_EQ(memory.slices()[0].size(), static_cast<size_t>(kMax));
  EXPECT_EQ(memory.slices()[2].data(), At(11 * kMax, 1).data());
  EXPECT_EQ(memory.slices()[3].size(), 1U);
}

TEST(FixedMemoryTest, ABufferMustLieInOneSlice) {
  const std::vector<std::span<std::byte>> regions = {At(9000, 1000), At(4096, 100),
                                                     At(10 * kMax, 2 * kMax)};
  const FixedMemory memory(regions);
  EXPECT_EQ(memory.Find(At(4096, 100)), 0);
  EXPECT_EQ(memory.Find(At(4195, 1)), 0);
  EXPECT_EQ(memory.Find(At(9999, 1)), 1);
  EXPECT_EQ(memory.Find(At(10 * kMax, kMax)), 2);
  EXPECT_EQ(memory.Find(At(11 * kMax, kMax)), 3);
  EXPECT_EQ(memory.Find(At(11 * kMax - 1, 1)), 2);
  for (const std::span<std::byte> outside :
       {At(4095, 2), At(4096, 101), At(4196, 1), At(4096, 0), At(11 * kMax - 1, 2),
        At(12 * kMax, 1), At(10'000, 1), At(1, 1)}) {
    EXPECT_EQ(memory.Find(outside), std::nullopt) << outside.data() << " " << outside.size();
  }
  EXPECT_EQ(FixedMemory({}).Find(At(4096, 1)), std::nullopt);
}

TEST(FixedMemoryDeathTest, OverlapAborts) {
  const std::vector<std::span<std::byte>> regions = {At(4096, 100), At(4195, 1)};
  EXPECT_DEATH(FixedMemory{regions}, "overlap");
}

}  // namespace
}  // namespace gantry
