#include "device/host/memory_limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

class AvailableMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::path(::testing::TempDir()) / info->test_suite_name() / info->name();
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  std::optional<Bytes> Available() const {
    return AvailableMemory({.meminfo = root_ / "meminfo",
                            .cgroup = root_ / "cgroup",
                            .cgroup_root = root_ / "groups"});
  }
  std::filesystem::path root_;
};

TEST_F(AvailableMemoryTest, IsUnknownWithoutFiles) { EXPECT_EQ(Available(), std::nullopt); }

TEST_F(AvailableMemoryTest, ReadsMeminfo) {
  Write("meminfo", "MemTotal:  9000 kB\nMemFree: 10 kB\nMemAvailable:   1000 kB\nBuffers: 5 kB\n");
  EXPECT_EQ(Available(), Bytes(1000 * 1024));
}

TEST_F(AvailableMemoryTest, TakesTheTightestGroupOnThePath) {
  Write("meminfo", "MemAvailable: 1000 kB\n");
  Write("cgroup", "0::/a/b\n");
  Write("groups/a/b/memory.max", "max\n");
  Write("groups/a/b/memory.current", "700\n");
  EXPECT_EQ(Available(), Bytes(1000 * 1024));
  Write("groups/a/memory.max", "5000\n");
  Write("groups/a/memory.current", "3000\n");
  EXPECT_EQ(Available(), Bytes(2000));
  Write("groups/a/memory.stat", "anon 900\nactive_file 300\nfile_dirty 7\ninactive_file 200\n");
  EXPECT_EQ(Available(), Bytes(2500));
  Write("groups/memory.max", "100\n");  // what a container sees as its root
  Write("groups/memory.current", "180\n");
  EXPECT_EQ(Available(), Bytes(0));
}

TEST_F(AvailableMemoryTest, IgnoresGroupsOfVersionOne) {
  Write("meminfo", "MemAvailable: 8 kB\n");
  Write("cgroup", "4:memory:/a\n");
  Write("groups/a/memory.max", "1\n");
  Write("groups/a/memory.current", "0\n");
  EXPECT_EQ(Available(), Bytes(8192));
}

TEST(MemoryLimitsTest, ThisProcessHasMappingsAndALimit) {
  EXPECT_GT(CountMappings(), 5);
  const std::optional<int64_t> limit = MappingLimit();
  ASSERT_TRUE(limit.has_value());
  EXPECT_GT(*limit, CountMappings());
}

TEST(MappingBudgetTest, RefusesMoreSlotsThanTheLimitAllowsAndNamesTheSysctl) {
  MappingBudget budget({.mappings_now = 76, .limit = 1024 + 76 + 20});  // room for 10 slots
  EXPECT_THAT(budget.Reserve(11),
              StatusIs(absl::StatusCode::kResourceExhausted, "sysctl -w vm.max_map_count=1122"));
  EXPECT_THAT(budget.Reserve(INT64_MAX), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(budget.Reserve(10), IsOk());
  EXPECT_THAT(budget.Reserve(0), IsOk());
  EXPECT_THAT(budget.Reserve(1), StatusIs(absl::StatusCode::kResourceExhausted));
  budget.Release(4);
  EXPECT_THAT(budget.Reserve(4), IsOk());
  budget.Release(10);
}

TEST(MappingBudgetTest, WithoutALimitNothingIsRefused) {
  MappingBudget budget({.mappings_now = 76, .limit = std::nullopt});
  EXPECT_THAT(budget.Reserve(int64_t{1} << 40), IsOk());
  budget.Release(int64_t{1} << 40);
}

TEST(MappingBudgetDeathTest, AbortsWhenSlotsAreStillReserved) {
  EXPECT_DEATH(
      {
        MappingBudget budget({.mappings_now = 0, .limit = std::nullopt});
        static_cast<void>(budget.Reserve(1));
      },
      "destroyed before its slabs");
}

}  // namespace
}  // namespace gantry
