// Three parameters that are used one after the other, step after step, on a device for two or three
// of them: small enough that what a plan says at each moment can be counted on the fingers.
#include "gemini/plan_follower.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/machine.h"
#include "placement_policy/training_problem.h"

namespace gantry {
namespace {

using Presence = PlanFollower::Presence;

class PlanFollowerTest : public ::testing::Test {
 protected:
  // Moment i uses the parameter of chunk i.
  static Trace ThreeOperators() {
    Trace trace{.block_slots = {1, 1, 1}, .names = {"operator"}, .uses = {}, .moments = {}};
    for (int32_t i = 0; i < 3; ++i) {
      trace.uses.push_back({.block = i, .access = BlockAccess::kRead});
      trace.moments.push_back({.phase = Phase::kForward,
                               .name = 0,
                               .first_use = i,
                               .use_count = 1,
                               .compute = 10,
                               .activation_slots = 0});
      trace.chunks.push_back({.parameter = i});
    }
    trace.slot_bytes = Bytes(1024);
    return trace;
  }

  static PlanFollower Follow(int64_t device_slots, std::vector<bool> keep) {
    const Trace trace = ThreeOperators();
    Machine machine{.slot_bytes = Bytes(1024), .device_slots = device_slots, .host_slots = 8};
    machine.rates.host_to_device.bytes_per_second = 1'000'000'000;
    machine.rates.device_to_host.bytes_per_second = 1'000'000'000;
    MovementDecision decision;
    decision.choices.chunks.resize(3);
    decision.resident.assign(3, false);
    auto training = BuildProblem(trace, machine, decision.choices);
    EXPECT_THAT(training, IsOk());
    decision.training = *std::move(training);
    decision.movement.keep = std::move(keep);
    return PlanFollower(trace, decision, 3);
  }

  // What may be fetched, as (block, distance).
  static std::vector<std::pair<BlockIndex, int64_t>> Ahead(const PlanFollower& follower,
                                                           int64_t cursor,
                                                           std::vector<Presence> presence) {
    std::vector<PlanFollower::Fetch> fetches = {{.block = 77, .distance = 77}};  // to be cleared
    follower.Ahead(
        cursor, [&presence](BlockIndex block) { return presence[static_cast<size_t>(block)]; },
        fetches);
    std::vector<std::pair<BlockIndex, int64_t>> result;
    for (const PlanFollower::Fetch& fetch : fetches) {
      result.emplace_back(fetch.block, fetch.distance);
    }
    return result;
  }

  static constexpr Presence kAbsent = Presence::kAbsent;
  static constexpr Presence kThere = Presence::kThere;
  static constexpr Presence kNotYet = Presence::kNotYet;
};

TEST_F(PlanFollowerTest, FetchesAsFarAsTheSlotsOfAllMomentsAllow) {
  const PlanFollower two = Follow(2, {false, false, false});
  // The operator before has a slot: one is left.
  EXPECT_THAT(Ahead(two, 0, {kAbsent, kAbsent, kAbsent}), ::testing::ElementsAre(std::pair(0, 0)));
  const PlanFollower three = Follow(3, {false, false, false});
  EXPECT_THAT(Ahead(three, 0, {kAbsent, kAbsent, kAbsent}),
              ::testing::ElementsAre(std::pair(0, 0), std::pair(1, 1)));
  // Over the end of the step.
  EXPECT_THAT(Ahead(three, 2, {kAbsent, kAbsent, kAbsent}),
              ::testing::ElementsAre(std::pair(2, 0), std::pair(0, 1)));
}

TEST_F(PlanFollowerTest, WhatIsThereHasItsSlot) {
  const PlanFollower two = Follow(2, {false, false, false});
  EXPECT_THAT(Ahead(two, 0, {kThere, kAbsent, kAbsent}), ::testing::IsEmpty());
  const PlanFollower three = Follow(3, {false, false, false});
  EXPECT_THAT(Ahead(three, 0, {kThere, kAbsent, kAbsent}), ::testing::ElementsAre(std::pair(1, 1)));
}

TEST_F(PlanFollowerTest, WhatIsStillToBeMadeIsPassedOver) {
  const PlanFollower three = Follow(3, {false, false, false});
  EXPECT_THAT(Ahead(three, 0, {kNotYet, kAbsent, kAbsent}),
              ::testing::ElementsAre(std::pair(1, 1), std::pair(2, 2)));
}

TEST_F(PlanFollowerTest, WhatStaysIsNotFetchedAndTakesRoom) {
  const PlanFollower follower = Follow(2, {true, false, false});
  EXPECT_TRUE(follower.Stays(0, 0));
  EXPECT_FALSE(follower.Stays(1, 1));
  EXPECT_FALSE(follower.Stays(2, 2));
  EXPECT_TRUE(follower.Stays(1, 0)) << "the plan says nothing of it";
  EXPECT_THAT(Ahead(follower, 1, {kAbsent, kAbsent, kAbsent}),
              ::testing::ElementsAre(std::pair(1, 0)));
  EXPECT_EQ(follower.lease_moments(), 3);
  EXPECT_EQ(follower.write_reserve(), 2);
}

TEST_F(PlanFollowerTest, SaysWhatIsHeldBetweenMoments) {
  // The first one stays, the others come for their use and leave.
  const PlanFollower follower = Follow(3, {true, false, false});
  for (int64_t cursor = 0; cursor <= 3; ++cursor) {
    SCOPED_TRACE(cursor);
    EXPECT_TRUE(follower.Holds(cursor, 0));
    EXPECT_FALSE(follower.Holds(cursor, 1));
    EXPECT_FALSE(follower.Holds(cursor, 2));
  }
}

TEST_F(PlanFollowerTest, WhatIsThereAtTheStartIsHeldOrFetchedByThen) {
  EXPECT_THAT(Follow(2, {false, false, false}).ThereAtStart(),
              ::testing::ElementsAre(true, false, false));
  EXPECT_THAT(Follow(3, {false, false, false}).ThereAtStart(),
              ::testing::ElementsAre(true, true, false));
  EXPECT_THAT(Follow(2, {true, false, false}).ThereAtStart(),
              ::testing::ElementsAre(true, false, false));
  EXPECT_THAT(Follow(2, {false, false, true}).ThereAtStart(),
              ::testing::ElementsAre(true, false, true));
}

// What is kept has a slot of its own: pushed out by something else, it comes back with the rest.
TEST_F(PlanFollowerTest, WhatIsKeptButLostIsFetchedAgain) {
  const PlanFollower follower = Follow(4, {false, false, true});
  EXPECT_THAT(Ahead(follower, 0, {kThere, kAbsent, kAbsent}),
              ::testing::ElementsAre(std::pair(1, 1), std::pair(2, 2)));
  EXPECT_THAT(Ahead(follower, 0, {kThere, kAbsent, kThere}),
              ::testing::ElementsAre(std::pair(1, 1)));
}

}  // namespace
}  // namespace gantry
