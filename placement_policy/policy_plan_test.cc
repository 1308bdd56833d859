// What each policy's placement becomes: where updates run, what is pinned, what lies in files.
#include "placement_policy/policy_plan.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/policy.h"
#include "placement_policy/simulator.h"
#include "placement_policy/synthetic_trace.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;

class PolicyPlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto shape = BuiltInModel("gpt2");
    ASSERT_THAT(shape, IsOk());
    auto trace =
        SyntheticTrace(*shape, {.sequence_length = 1024, .recomputation = Recomputation::kFull});
    ASSERT_THAT(trace, IsOk());
    trace_ = *std::move(trace);
    chunks_ = static_cast<int64_t>(trace_.chunks.size());
    machine_.slot_bytes = trace_.slot_bytes;
    machine_.device_slots = 2 * chunks_;
    machine_.host_slots = 10 * chunks_;
    machine_.has_file_tier = true;
    machine_.rates.host_to_device = {.bytes_per_second = 25'000'000'000};
    machine_.rates.device_to_host = {.bytes_per_second = 25'000'000'000};
    machine_.rates.file_read = {.bytes_per_second = 7'000'000'000};
    machine_.rates.file_write = {.bytes_per_second = 5'000'000'000};
    machine_.rates.host_update_bytes_per_second = 160'000'000'000;
    machine_.rates.device_memory_bytes_per_second = 1'900'000'000'000;
  }
  absl::StatusOr<MovementDecision> Plan(std::string_view policy,
                                        const PolicyPlanOptions& options = {}) const {
    return PolicyPlan(policy, trace_, machine_, options);
  }
  int64_t CountInFiles(const MovementDecision& decision) const {
    return std::ranges::count_if(decision.choices.chunks,
                                 [](const ChunkChoice& c) { return c.states_in_file; });
  }

  Trace trace_;
  Machine machine_;
  int64_t chunks_ = 0;
};

TEST_F(PolicyPlanTest, DeviceUpdatesAndKeepsEverythingThere) {
  machine_.device_slots = 9 * chunks_;
  const auto plan = Plan("device");
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->shape.resident, chunks_);
  EXPECT_TRUE(plan->training.problem.updates.empty());
  for (const int64_t bytes : plan->predicted.bytes) EXPECT_EQ(bytes, 0);
  machine_.device_slots = 5 * chunks_;
  EXPECT_THAT(Plan("device"), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(PolicyPlanTest, CpuFetchesEveryUse) {
  const auto plan = Plan("cpu");
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(static_cast<int64_t>(plan->training.problem.updates.size()), chunks_);
  const auto floating = Plan("auto");
  ASSERT_THAT(floating, IsOk());
  constexpr auto kUp = static_cast<size_t>(SimulatedLane::kHostToDevice);
  EXPECT_GT(plan->predicted.bytes[kUp], floating->predicted.bytes[kUp]);
  for (const int32_t block : plan->training.parameter) {
    EXPECT_EQ(plan->movement.residency[static_cast<size_t>(block)], Residency::kTransient);
  }
}

TEST_F(PolicyPlanTest, AutoAndLruDifferInWhatLeaves) {
  const auto furthest = Plan("auto");
  const auto least_recent = Plan("lru");
  ASSERT_THAT(furthest, IsOk());
  ASSERT_THAT(least_recent, IsOk());
  EXPECT_EQ(furthest->movement.eviction, EvictionOrder::kFurthestNextUse);
  EXPECT_EQ(least_recent->movement.eviction, EvictionOrder::kLeastRecentlyUsed);
  EXPECT_EQ(furthest->movement.look_ahead, 8);
  EXPECT_EQ(furthest->movement.update_order, MovementPlan::UpdateOrder::kArrival);
  EXPECT_EQ(furthest->choices.host_buffers, 0);
}

TEST_F(PolicyPlanTest, WhatHostMemoryDoesNotHoldLiesInFiles) {
  machine_.host_slots = 4 * chunks_;
  const auto furthest = Plan("auto");
  ASSERT_THAT(furthest, IsOk());
  // Parameters, 4 slots for gradients, 8 buffers; the rest holds states of 6 slots.
  const int64_t held = (4 * chunks_ - chunks_ - 4 - 8 * 6) / 6;
  EXPECT_EQ(CountInFiles(*furthest), chunks_ - held);
  EXPECT_EQ(furthest->shape.in_files, chunks_ - held);
  const auto least_recent = Plan("lru");
  ASSERT_THAT(least_recent, IsOk());
  EXPECT_EQ(CountInFiles(*least_recent), chunks_);
  machine_.has_file_tier = false;
  EXPECT_THAT(Plan("auto"),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no file tier")));
}

TEST_F(PolicyPlanTest, StaticFractions) {
  machine_.device_slots = 5 * chunks_;
  const auto plan = Plan(
      "static",
      {.fractions = {.offload_parameters = 0.0, .offload_optimizer = 0.5, .spill_optimizer = 0.5}});
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->shape.resident, chunks_ / 2);
  EXPECT_NEAR(static_cast<double>(CountInFiles(*plan)), static_cast<double>(chunks_) / 4, 1);
  EXPECT_EQ(plan->movement.residency[static_cast<size_t>(plan->training.parameter[0])],
            Residency::kPinned);
}

TEST_F(PolicyPlanTest, UnknownPoliciesAndTheNorm) {
  EXPECT_THAT(Plan("best"), StatusIs(absl::StatusCode::kInvalidArgument));
  const auto plan = Plan("auto", {.wait_for_norm = true});
  ASSERT_THAT(plan, IsOk());
  EXPECT_TRUE(plan->training.problem.wait_for_norm);
  const auto without = Plan("auto");
  ASSERT_THAT(without, IsOk());
  EXPECT_GE(plan->predicted.elapsed, without->predicted.elapsed);
  EXPECT_NE(plan->hash, without->hash);
}

}  // namespace
}  // namespace gantry
