// Goal: views address the elements they say, and workspaces hand out disjoint aligned arrays.
#include "kernels/views.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/parallel_for.h"
#include "gtest/gtest.h"
#include "kernels/testing/kernel_test_support.h"
#include "kernels/workspace.h"

namespace gantry {
namespace {

using testing::TestWorkspace;

std::vector<float> Counting(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return values;
}

TEST(ViewsTest, RowsAndColumnsSelectElements) {
  std::vector<float> values = Counting(24);
  const MatrixView all = ViewOf(std::span(values), {.rows = 4, .cols = 6});
  const ConstMatrixView part = all.Rows(1, 2).Columns(2, 3);
  EXPECT_EQ(ShapeOf(part), (MatrixShape{.rows = 2, .cols = 3}));
  EXPECT_EQ(part.Row<float>(0)[0], 8.0f);
  EXPECT_EQ(part.Row<float>(1)[2], 16.0f);
  EXPECT_EQ(part.RowView(1).Part(1, 2).As<float>()[0], 15.0f);
  EXPECT_EQ(all.Flat().size, 24);
}

TEST(ViewsTest, OverlapComparesAddressRanges) {
  std::vector<float> values = Counting(24);
  const MatrixView all = ViewOf(std::span(values), {.rows = 4, .cols = 6});
  EXPECT_TRUE(RangesOverlap(all, all.Rows(3, 1)));
  EXPECT_FALSE(RangesOverlap(all.Rows(0, 2), all.Rows(2, 2)));
  EXPECT_FALSE(RangesOverlap(all.Rows(1, 0), all));
}

TEST(ViewsTest, ElementTypesAreDispatched) {
  int64_t size = 0;
  const auto measure = [&]<typename T>(T*) { size = sizeof(T); };
  WithElementType(DType::kF32, measure);
  EXPECT_EQ(size, 4);
  WithElementType(DType::kBF16, measure);
  EXPECT_EQ(size, 2);
}

TEST(ViewsDeathTest, MisuseAborts) {
  std::vector<float> values = Counting(12);
  const MatrixView all = ViewOf(std::span(values), {.rows = 3, .cols = 4});
  EXPECT_DEATH(all.Rows(2, 2), "rows 2");
  EXPECT_DEATH(all.Columns(-1, 2), "columns -1");
  EXPECT_DEATH(all.Columns(0, 2).Flat(), "stride 4");
  EXPECT_DEATH(CheckMatrix(all, {.rows = 4, .cols = 3}, DType::kF32, "x"), "x is");
  EXPECT_DEATH(CheckMatrix(all, {.rows = 3, .cols = 4}, DType::kBF16, "x"), "not bf16");
  EXPECT_DEATH(WithElementType(DType::kF16, []<typename T>(T*) {}), "no kernel for f16");
}

TEST(WorkspaceTest, CountingAndTakingAgreeAndArraysAreAligned) {
  const auto take = [](WorkspaceCursor& cursor) {
    return std::pair{cursor.Take<float>(3), cursor.Take<int64_t>(9)};
  };
  WorkspaceCursor counting;
  take(counting);
  EXPECT_EQ(counting.taken(), Bytes(64 + 128));
  const TestWorkspace workspace(counting.taken());
  WorkspaceCursor cursor(workspace.span());
  const auto [first, second] = take(cursor);
  EXPECT_EQ(reinterpret_cast<std::byte*>(first), workspace.span().data());
  EXPECT_EQ(reinterpret_cast<std::byte*>(second), workspace.span().data() + 64);
}

TEST(WorkspaceDeathTest, TooSmallAborts) {
  const TestWorkspace workspace(Bytes(64));
  WorkspaceCursor cursor(workspace.span());
  EXPECT_DEATH(cursor.Take<float>(17), "workspace bytes");
}

TEST(WorkspaceTest, SlotsAreNeverSharedAndComeBack) {
  const ScratchSlots::Options options = {.slots = 3, .bytes_each = Bytes(100)};
  const TestWorkspace workspace(ScratchSlots::WorkspaceBytes(options));
  ScratchSlots slots(workspace.span(), options);
  auto team = ThreadTeam::Create({.threads = 3});
  ASSERT_TRUE(team.ok());
  std::atomic<int64_t> clashes = 0;
  (*team)->For({.count = 300, .grain = 1}, [&](int64_t begin, int64_t) {
    const auto slot = slots.Acquire();
    EXPECT_EQ(slot.memory().size(), 128u);
    auto* mark = reinterpret_cast<int64_t*>(slot.memory().data());
    for (int repeat = 0; repeat < 100; ++repeat) {
      *mark = begin;
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (*mark != begin) ++clashes;
    }
  });
  EXPECT_EQ(clashes.load(), 0);
}

}  // namespace
}  // namespace gantry
