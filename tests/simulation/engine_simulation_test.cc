// The engine on simulated machines, against the store that holds everything in plain memory: for
// many seeds, each a model, a machine, budgets and an order of events, the same bits. And a seed is
// one run: the same events, the same virtual time.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>

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
INSTANTIATE_TEST_SUITE_P(PlannedSeeds, EngineSimulationTest,
                         ::testing::Range(kPlannedSeeds, kPlannedSeeds + 50));

// Scenarios in which device and host have hardly room to exchange blocks: no files, a static
// placement, both tiers update.
class EngineExchangeTest : public ::testing::Test {
 protected:
  static Scenario Tight(const ToyModel::Options& model, OptimizerKind optimizer) {
    return {.model = model,
            .gradient_dtype = DType::kF32,
            .hyper = {.kind = optimizer, .learning_rate = 1e-2, .max_gradient_norm = 0.5},
            .steps = 2,
            .files = false,
            .policy = "static",
            .fractions = {},
            .look_ahead = 4,
            .chunk_elements = kChunkGranularityElements,
            .lane_bandwidth = 1'000'000'000,
            .lane_latency = 10'000};
  }

  void ExpectRightBits(const Scenario& scenario) {
    SCOPED_TRACE(Describe(scenario));
    const auto expected = RunOracle(scenario);
    ASSERT_THAT(expected, IsOk());
    for (uint64_t order = 0; order < kOrders; ++order) {
      SCOPED_TRACE(StrCat("order ", order));
      FaultPlan healthy({});
      const RunResult result = RunSimulated({.scenario = &scenario,
                                             .order_seed = order,
                                             .faults = &healthy,
                                             .checkpoint_directory = {}});
      ASSERT_THAT(result.status, IsOk());
      EXPECT_EQ(result.fingerprint, *expected);
    }
  }
};

// Found by the campaign: the host was full of states that the device is home to, and a gradient on
// its way to its update found no room there.
TEST_F(EngineExchangeTest, GradientsReachAHostFullOfTheDevicesStates) {
  Scenario scenario = Tight({.layers = 4,
                             .layer_elements = 36'905,
                             .tied_elements = 20'632,
                             .frozen_elements = 21'834,
                             .activation_bytes = 5'713},
                            OptimizerKind::kLion);
  scenario.fractions = {.offload_parameters = 0.289498, .offload_optimizer = 0.58666};
  scenario.device_slots = 15;
  scenario.host_slots = 32;
  ExpectRightBits(scenario);
}

// With one slot free on the device and one on the host, a block of two could not move: the budget
// does not admit that.
TEST_F(EngineExchangeTest, TheLeastBudgetHasRoomForBlocksOfTwoSizes) {
  Scenario scenario = Tight({.layers = 4,
                             .layer_elements = 27'471,
                             .tied_elements = 14'141,
                             .frozen_elements = 27'294,
                             .activation_bytes = 27'610},
                            OptimizerKind::kAdam);
  scenario.state_format = StateFormat::kSplitMaster;
  scenario.hyper.max_gradient_norm = 0.0;
  scenario.chunk_elements = 2 * kChunkGranularityElements;
  scenario.look_ahead = 5;
  scenario.fractions = {.offload_parameters = 0.52817, .offload_optimizer = 0.0163371};
  const auto least = WithLeastRoom(scenario);
  ASSERT_THAT(least, IsOk());
  ExpectRightBits(*least);
}

TEST_F(EngineExchangeTest, TheLeastBudgetsOfManyModelsAreEnough) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    auto drawn = DrawScenario(seed);
    ASSERT_THAT(drawn, IsOk());
    auto scenario = WithLeastRoom(*std::move(drawn));
    ASSERT_THAT(scenario, IsOk());
    if (seed % 3 == 2) scenario->device_slots += 6;
    ExpectRightBits(*scenario);
  }
}

// The scenarios speculate, and both outcomes come up, or the tests above would not show that the
// bits stay the same then.
TEST(EngineSimulation, SpeculatesAndTakesBack) {
  int64_t kept = 0;
  int64_t taken_back = 0;
  for (uint64_t seed = 0; seed < 240; ++seed) {
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
  EXPECT_GT(kept, 8);
  EXPECT_GT(taken_back, 12);
}

// The scenarios reach movement plans, and some leave them for good.
TEST(EngineSimulation, PlansAndPlansAnew) {
  int64_t planned = 0;
  int64_t anew = 0;
  for (uint64_t seed = kPlannedSeeds; seed < kPlannedSeeds + 30; ++seed) {
    const auto scenario = DrawScenario(seed);
    ASSERT_THAT(scenario, IsOk());
    FaultPlan healthy({});
    const RunResult result = RunSimulated(
        {.scenario = &*scenario, .order_seed = 0, .faults = &healthy, .checkpoint_directory = {}});
    ASSERT_THAT(result.status, IsOk()) << Describe(*scenario);
    planned += result.planned ? 1 : 0;
    // Two that stray, two that are timed.
    const int64_t others = scenario->varies_from == 0 ? 0 : scenario->steps - scenario->varies_from;
    anew += result.planned && others >= 4 ? 1 : 0;
  }
  std::cout << planned << " of 30 end with a plan, " << anew << " of them with their second\n";
  EXPECT_GT(planned, 10);
  EXPECT_GT(anew, 2);
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
