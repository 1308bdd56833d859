#include "device/host/virtual_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/testing/status_matchers.h"
#include "device/testing/process_memory.h"

namespace gantry {
namespace {

constexpr int64_t kSmall = 64 * 1024;

AddressRange Reserve(int64_t bytes, AddressRange::Access access) {
  auto range = AddressRange::Reserve(Bytes(bytes), access);
  EXPECT_THAT(range, IsOk());
  return *std::move(range);
}

std::span<const std::byte> SpanOf(const AddressRange& range) {
  return {range.base(), static_cast<size_t>(range.bytes())};
}

std::byte Mark(int64_t i) { return static_cast<std::byte>(i % 251 + 1); }

void Fill(std::byte* base, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) base[i] = Mark(i);
}
bool Filled(const std::byte* base, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) {
    if (base[i] != Mark(i)) return false;
  }
  return true;
}

TEST(AddressRangeTest, IsAlignedAndAsAccessibleAsAsked) {
  AccessProbe probe;
  for (const int64_t bytes : {int64_t{4096}, kSmall, kHugePageBytes, kHugePageBytes + 4096}) {
    const AddressRange memory = Reserve(bytes, AddressRange::Access::kReadWrite);
    const AddressRange addresses = Reserve(bytes, AddressRange::Access::kNone);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.base()) % kHugePageBytes, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(addresses.base()) % kHugePageBytes, 0u);
    Fill(memory.base(), bytes);
    EXPECT_TRUE(Filled(memory.base(), bytes));
    EXPECT_TRUE(probe.Faults(addresses.base()));
    EXPECT_TRUE(probe.Faults(addresses.base() + bytes - 1));
  }
}

TEST(AddressRangeTest, NoBytesIsAnEmptyRange) {
  EXPECT_EQ(Reserve(0, AddressRange::Access::kNone).base(), nullptr);
}

TEST(AddressRangeTest, TooManyBytesIsResourceExhausted) {
  for (const int64_t bytes : {int64_t{1} << 50, INT64_MAX / 4096 * 4096}) {
    EXPECT_THAT(AddressRange::Reserve(Bytes(bytes), AddressRange::Access::kNone),
                StatusIs(absl::StatusCode::kResourceExhausted, "no address range of"));
  }
}

TEST(AddressRangeTest, MovesAndUnmapsItself) {
  AccessProbe probe;
  AddressRange a = Reserve(4096, AddressRange::Access::kReadWrite);
  std::byte* const first = a.base();
  *first = std::byte{1};
  AddressRange b = std::move(a);
  EXPECT_EQ(a.base(), nullptr);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(b.base(), first);
  AddressRange c = Reserve(4096, AddressRange::Access::kReadWrite);
  std::byte* const second = c.base();
  b = std::move(c);
  EXPECT_EQ(b.base(), second);
  EXPECT_EQ(c.base(), nullptr);  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(probe.Faults(first));
  b = AddressRange();
  EXPECT_TRUE(probe.Faults(second));
}

TEST(MoveMethodTest, ThisKernelKeepsTheSource) {
  // Linux 5.7 and later. Fails loudly on an older one, where only the other method works.
  EXPECT_EQ(ProbeMoveMethod(), MoveMethod::kKeepSource);
}

class MovePagesTest : public ::testing::TestWithParam<MoveMethod> {};
INSTANTIATE_TEST_SUITE_P(Methods, MovePagesTest,
                         ::testing::Values(MoveMethod::kKeepSource, MoveMethod::kRefillSource),
                         [](const auto& info) {
                           return info.param == MoveMethod::kKeepSource ? "KeepSource"
                                                                        : "RefillSource";
                         });

TEST_P(MovePagesTest, MovesContentAndFaultsWhereItWas) {
  AccessProbe probe;
  const AddressRange memory = Reserve(3 * kSmall, AddressRange::Access::kReadWrite);
  const AddressRange home = Reserve(3 * kSmall, AddressRange::Access::kNone);
  Fill(memory.base(), memory.bytes());
  const PageMove there = {memory.base() + kSmall, home.base() + 2 * kSmall, kSmall};
  for (int round = 0; round < 3; ++round) {
    ASSERT_THAT(MovePages(GetParam(), there), IsOk());
    for (int64_t offset = 0; offset < kSmall; offset += 4096) {
      EXPECT_TRUE(probe.Faults(there.from + offset));
      EXPECT_EQ(probe.Read(there.to + offset), static_cast<int>(Mark(kSmall + offset)));
    }
    EXPECT_TRUE(probe.Faults(there.to - 1));
    EXPECT_FALSE(probe.Faults(there.from - 1));
    EXPECT_FALSE(probe.Faults(there.from + kSmall));
    EXPECT_EQ(ResidentBytes(SpanOf(memory)) + ResidentBytes(SpanOf(home)), Bytes(3 * kSmall));
    ASSERT_THAT(MovePages(GetParam(), {there.to, there.from, kSmall}), IsOk());
    EXPECT_TRUE(Filled(memory.base(), memory.bytes()));
    EXPECT_TRUE(probe.Faults(there.to));
  }
}

// Neighbouring mappings of one kind become one again: otherwise a long run would use up
// vm.max_map_count.
TEST_P(MovePagesTest, MappingsMergeAgain) {
  constexpr int64_t kCount = 16;
  const AddressRange memory = Reserve(kCount * kSmall, AddressRange::Access::kReadWrite);
  const AddressRange home = Reserve(2 * kCount * kSmall, AddressRange::Access::kNone);
  Fill(memory.base(), memory.bytes());
  ASSERT_EQ(MappingsIn(SpanOf(memory)), 1);
  ASSERT_EQ(MappingsIn(SpanOf(home)), 1);
  for (int round = 0; round < 3; ++round) {
    for (int64_t i = 0; i < kCount; ++i) {  // to every other place, in an order that is not sorted
      const int64_t k = i * 7 % kCount;
      ASSERT_THAT(
          MovePages(GetParam(), {memory.base() + k * kSmall, home.base() + 2 * k * kSmall, kSmall}),
          IsOk());
    }
    EXPECT_EQ(MappingsIn(SpanOf(memory)), 1);
    EXPECT_LE(MappingsIn(SpanOf(home)), 2 * kCount + 1);
    for (int64_t i = 0; i < kCount; ++i) {
      const int64_t k = i * 5 % kCount;
      ASSERT_THAT(
          MovePages(GetParam(), {home.base() + 2 * k * kSmall, memory.base() + k * kSmall, kSmall}),
          IsOk());
    }
    EXPECT_EQ(MappingsIn(SpanOf(memory)), 1);
    EXPECT_EQ(MappingsIn(SpanOf(home)), 1);
  }
  EXPECT_TRUE(Filled(memory.base(), memory.bytes()));
}

TEST_P(MovePagesTest, HugePagesStayHuge) {
  constexpr int64_t kBytes = 2 * kHugePageBytes;
  if (!HugePagesAvailable(Bytes(kBytes))) GTEST_SKIP() << "this machine gives no 2 MiB pages now";
  const AddressRange memory = Reserve(kBytes, AddressRange::Access::kReadWrite);
  const AddressRange home = Reserve(2 * kBytes, AddressRange::Access::kNone);
  ASSERT_EQ(madvise(memory.base(), kBytes, MADV_HUGEPAGE), 0);
  Fill(memory.base(), kBytes);
  ASSERT_EQ(HugeBytes(SpanOf(memory)), Bytes(kBytes));
  for (int round = 0; round < 20; ++round) {
    ASSERT_THAT(MovePages(GetParam(), {memory.base(), home.base() + kHugePageBytes, kBytes}),
                IsOk());
    home.base()[kHugePageBytes + round * 4096] = Mark(round * 4096);  // a write splits nothing
    EXPECT_EQ(HugeBytes(SpanOf(home)), Bytes(kBytes));
    ASSERT_THAT(MovePages(GetParam(), {home.base() + kHugePageBytes, memory.base(), kBytes}),
                IsOk());
    EXPECT_EQ(HugeBytes(SpanOf(memory)), Bytes(kBytes));
  }
  EXPECT_TRUE(Filled(memory.base(), kBytes));
}

TEST_P(MovePagesTest, ARefusedMoveChangesNothing) {
  AccessProbe probe;
  const AddressRange memory = Reserve(3 * kSmall, AddressRange::Access::kReadWrite);
  const AddressRange home = Reserve(kSmall, AddressRange::Access::kNone);
  Fill(memory.base(), memory.bytes());
  // mremap refuses ranges that overlap.
  EXPECT_THAT(MovePages(GetParam(), {memory.base(), memory.base() + kSmall, 2 * kSmall}),
              StatusIs(absl::StatusCode::kInternal, std::strerror(EINVAL)));
  EXPECT_TRUE(Filled(memory.base(), memory.bytes()));
  memory.base()[0] = Mark(0);  // still writable
  EXPECT_TRUE(probe.Faults(home.base()));
  ASSERT_THAT(MovePages(GetParam(), {memory.base(), home.base(), kSmall}), IsOk());
  EXPECT_TRUE(Filled(home.base(), kSmall));
}

// Fills the process up to vm.max_map_count for real, then lets moves through one mapping at a time:
// each one either happens whole or not at all.
TEST_P(MovePagesTest, AtTheMappingLimitAMoveHappensWholeOrNotAtAll) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's runtime needs mappings itself";
  AccessProbe probe;
  constexpr int64_t kCount = 4;
  const AddressRange memory = Reserve(kCount * kSmall, AddressRange::Access::kReadWrite);
  const AddressRange home = Reserve(2 * kCount * kSmall, AddressRange::Access::kNone);
  Fill(memory.base(), memory.bytes());
  std::ifstream limit_file("/proc/sys/vm/max_map_count");
  int64_t limit = 0;
  ASSERT_TRUE(limit_file >> limit);
  if (limit > (1 << 18)) GTEST_SKIP() << "vm.max_map_count is " << limit << ": too slow to reach";
  // Every other page of a range gets another protection, so nothing merges.
  const AddressRange filler = Reserve((limit + 2) * 4096, AddressRange::Access::kNone);
  std::vector<std::byte*> splits;
  splits.reserve(static_cast<size_t>(limit));
  for (int64_t page = 0; page < limit; page += 2) {
    std::byte* const address = filler.base() + page * 4096;
    if (mprotect(address, 4096, PROT_READ) != 0) break;
    splits.push_back(address);
  }
  int refused = 0;
  int moved = 0;
  const auto slot_is_at = [&](int64_t slot, const std::byte* here, const std::byte* gone) {
    return probe.Read(here) == static_cast<int>(Mark(slot * kSmall)) && probe.Faults(gone);
  };
  for (int64_t slot = 0; slot < kCount; ++slot) {
    std::byte* const parking = memory.base() + slot * kSmall;
    std::byte* const at_home = home.base() + (2 * slot + 1) * kSmall;
    while (true) {
      const absl::Status status = MovePages(GetParam(), {parking, at_home, kSmall});
      if (status.ok()) break;
      ASSERT_THAT(status, StatusIs(absl::StatusCode::kInternal, "vm.max_map_count"));
      ASSERT_TRUE(slot_is_at(slot, parking, at_home));
      ++refused;
      ASSERT_FALSE(splits.empty());
      ASSERT_EQ(mprotect(splits.back(), 4096, PROT_NONE), 0);
      splits.pop_back();
    }
    ++moved;
    ASSERT_TRUE(slot_is_at(slot, at_home, parking));
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(moved, kCount);
}

using MovePagesDeathTest = MovePagesTest;
INSTANTIATE_TEST_SUITE_P(Methods, MovePagesDeathTest,
                         ::testing::Values(MoveMethod::kKeepSource, MoveMethod::kRefillSource));

TEST_P(MovePagesDeathTest, TouchingWhatWasLeftIsASegmentationFault) {
  const AddressRange memory = Reserve(kSmall, AddressRange::Access::kReadWrite);
  const AddressRange home = Reserve(kSmall, AddressRange::Access::kNone);
  Fill(memory.base(), kSmall);
  const auto touch = [](std::byte* address) {
    std::signal(SIGSEGV, SIG_DFL);  // the sanitizers have a handler of their own
    *static_cast<volatile std::byte*>(address) = std::byte{1};
  };
  EXPECT_EXIT(touch(home.base()), ::testing::KilledBySignal(SIGSEGV), "");
  ASSERT_THAT(MovePages(GetParam(), {memory.base(), home.base(), kSmall}), IsOk());
  EXPECT_EXIT(touch(memory.base()), ::testing::KilledBySignal(SIGSEGV), "");
  ASSERT_THAT(MovePages(GetParam(), {home.base(), memory.base(), kSmall}), IsOk());
  EXPECT_EXIT(touch(home.base()), ::testing::KilledBySignal(SIGSEGV), "");
}

}  // namespace
}  // namespace gantry
