// The engine on simulated machines, against the store that holds everything in plain memory: for
// many seeds, each a model, a machine, budgets and an order of events, the same bits. And a seed is
// one run: the same events, the same virtual time.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "base/testing/fault_plan.h"
#include "base/testing/status_matchers.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulated_run.h"
#include "tests/simulation/spill_folders.h"

namespace gantry {
namespace {

constexpr int64_t kOrders = 3;  // of events, per scenario

class EngineSimulationTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(EngineSimulationTest, ComputesWhatTheOracleComputes) {
  const auto scenario = DrawScenario(GetParam());
  ASSERT_THAT(scenario, IsOk());
  SCOPED_TRACE(Describe(*scenario));
  const auto expected = RunOracle(*scenario);
  ASSERT_THAT(expected, IsOk());
  const SpillFolders checkpoints(1);
  for (uint64_t order = 0; order < kOrders; ++order) {
    SCOPED_TRACE(StrCat("order ", order));
    FaultPlan healthy({});
    const RunResult result = RunSimulated({.scenario = &*scenario,
                                           .order_seed = order,
                                           .faults = &healthy,
                                           .checkpoint_directory = checkpoints.paths()[0]});
    ASSERT_THAT(result.status, IsOk());
    EXPECT_EQ(result.fingerprint, *expected);
    EXPECT_EQ(result.left_behind, "");
    if (order > 0) continue;
    // The same again, and from the checkpoint.
    FaultPlan again({});
    const RunResult replayed = RunSimulated({.scenario = &*scenario,
                                             .order_seed = order,
                                             .faults = &again,
                                             .checkpoint_directory = checkpoints.paths()[0]});
    EXPECT_EQ(replayed.events, result.events);
    EXPECT_EQ(replayed.end, result.end);
    EXPECT_EQ(replayed.fingerprint, result.fingerprint);
    ASSERT_EQ(result.checkpoint.steps, scenario->checkpoint_after);
    const RunResult resumed = RunSimulated({.scenario = &*scenario,
                                            .order_seed = order,
                                            .faults = &again,
                                            .checkpoint_directory = {},
                                            .resume = &result.checkpoint});
    ASSERT_THAT(resumed.status, IsOk());
    EXPECT_EQ(resumed.fingerprint, *expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EngineSimulationTest, ::testing::Range(uint64_t{0}, uint64_t{100}));

// Found by the campaign: without files the host was full of states that the device is home to, and
// a gradient on its way to its update found no room there.
INSTANTIATE_TEST_SUITE_P(Found, EngineSimulationTest,
                         ::testing::Values(uint64_t{1'796'069'802'000'702}));

struct LeastRoom {
  uint64_t seed;
  int64_t spare_device_slots;
};

class EngineLeastRoomTest : public ::testing::TestWithParam<LeastRoom> {};

// What the budget admits never gets stuck, however little room there is to exchange blocks.
TEST_P(EngineLeastRoomTest, DeviceAndHostExchangeBlocks) {
  auto drawn = DrawScenario(GetParam().seed);
  ASSERT_THAT(drawn, IsOk());
  auto scenario = WithLeastRoom(*std::move(drawn));
  ASSERT_THAT(scenario, IsOk());
  scenario->device_slots += GetParam().spare_device_slots;
  SCOPED_TRACE(Describe(*scenario));
  const auto expected = RunOracle(*scenario);
  ASSERT_THAT(expected, IsOk());
  for (uint64_t order = 0; order < kOrders; ++order) {
    SCOPED_TRACE(StrCat("order ", order));
    FaultPlan healthy({});
    const RunResult result = RunSimulated({.scenario = &*scenario,
                                           .order_seed = order,
                                           .faults = &healthy,
                                           .checkpoint_directory = {}});
    ASSERT_THAT(result.status, IsOk());
    EXPECT_EQ(result.fingerprint, *expected);
  }
}

std::vector<LeastRoom> LeastRooms() {
  std::vector<LeastRoom> rooms;
  for (uint64_t seed = 0; seed < 16; ++seed) rooms.push_back({seed, seed % 3 == 2 ? 6 : 0});
  // With one slot free on the device and one on the host, a block of two could not move.
  rooms.push_back({43, 0});
  rooms.push_back({70, 0});
  // The host was full of what the device is home to.
  rooms.push_back({275, 0});
  rooms.push_back({394, 8});
  return rooms;
}

INSTANTIATE_TEST_SUITE_P(Seeds, EngineLeastRoomTest, ::testing::ValuesIn(LeastRooms()),
                         [](const auto& info) {
                           return StrCat(info.param.seed, "and", info.param.spare_device_slots);
                         });

// The scenarios speculate, and both outcomes come up, or the tests above would not show that the
// bits stay the same then.
TEST(EngineSimulation, SpeculatesAndTakesBack) {
  int64_t kept = 0;
  int64_t taken_back = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto scenario = DrawScenario(seed);
    ASSERT_THAT(scenario, IsOk());
    if (scenario->update_order != UpdateOrder::kSpeculative) continue;
    FaultPlan healthy({});
    const RunResult result = RunSimulated(
        {.scenario = &*scenario, .order_seed = 0, .faults = &healthy, .checkpoint_directory = {}});
    ASSERT_THAT(result.status, IsOk()) << Describe(*scenario);
    kept += result.updates_speculated - result.updates_taken_back;
    taken_back += result.updates_taken_back;
  }
  EXPECT_GT(kept, 5);
  EXPECT_GT(taken_back, 3);
}

// Different orders are different runs, or the test above would prove little.
TEST(EngineSimulation, OrdersDiffer) {
  const auto scenario = DrawScenario(3);
  ASSERT_THAT(scenario, IsOk());
  int64_t different = 0;
  Nanoseconds first = 0;
  for (uint64_t order = 0; order < 8; ++order) {
    FaultPlan healthy({});
    const RunResult result = RunSimulated({.scenario = &*scenario,
                                           .order_seed = order,
                                           .faults = &healthy,
                                           .checkpoint_directory = {}});
    ASSERT_THAT(result.status, IsOk());
    if (order == 0) first = result.end;
    different += result.end != first ? 1 : 0;
  }
  EXPECT_GT(different, 4) << Describe(*scenario);
}

}  // namespace
}  // namespace gantry
