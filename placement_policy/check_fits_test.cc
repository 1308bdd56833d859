// Exact limits on a small trace, and random ones against LargestNeed.
#include "placement_policy/check_fits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/testing/random_trace.h"

namespace gantry {
namespace {

constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

// A forward moment with 3 slots of activations and 3 of blocks, and an update of 6 slots. All
// blocks but the gradient last: 6 slots.
Trace SmallTrace() {
  Trace trace;
  trace.block_slots = {1, 1, 2, 2, 1};
  trace.names = {"matmul", "update"};
  trace.uses = {
      {.block = 0, .access = BlockAccess::kRead},   {.block = 2, .access = BlockAccess::kWrite},
      {.block = 0, .access = BlockAccess::kRead},   {.block = 1, .access = BlockAccess::kCreate},
      {.block = 0, .access = BlockAccess::kCreate}, {.block = 1, .access = BlockAccess::kConsume},
      {.block = 2, .access = BlockAccess::kWrite},  {.block = 3, .access = BlockAccess::kWrite}};
  trace.moments = {{.phase = Phase::kForward,
                    .name = 0,
                    .first_use = 0,
                    .use_count = 4,
                    .compute = 0,
                    .activation_slots = 3},
                   {.phase = Phase::kOptimizer,
                    .name = 1,
                    .first_use = 4,
                    .use_count = 4,
                    .compute = 0,
                    .activation_slots = 0}};
  trace.slot_bytes = 2_MiB;
  return trace;
}

Machine Slots(int64_t device, int64_t host) {
  return {.slot_bytes = 2_MiB, .device_slots = device, .host_slots = host};
}

TEST(CheckFitsTest, OperatorsNeedTheDevice) {
  const Trace trace = SmallTrace();
  EXPECT_THAT(CheckFits(trace, Slots(7, 6)), IsOk());
  EXPECT_THAT(CheckFits(trace, Slots(6, 100)),
              StatusIs(kExhausted,
                       "moment 0 ('matmul') needs 7 slots of 2.0 MiB at once on the device "
                       "(3 for activations, 4 for its blocks), which has 6"));
}

TEST(CheckFitsTest, UpdatesNeedOneOfTwoTiers) {
  Trace trace = SmallTrace();
  trace.moments[0].use_count = 1;
  EXPECT_THAT(CheckFits(trace, Slots(4, 6)), IsOk());
  EXPECT_THAT(CheckFits(trace, Slots(6, 0)), IsOk());
  EXPECT_THAT(CheckFits(trace, Slots(5, 5)),
              StatusIs(kExhausted,
                       "moment 1 ('update') needs 6 slots of 2.0 MiB at once; the device has 5, "
                       "the host 5"));
  // Beside activations an update can only be on the device.
  trace.moments[1].activation_slots = 1;
  EXPECT_THAT(CheckFits(trace, Slots(6, 9)), StatusIs(kExhausted, "at once on the device"));
  EXPECT_THAT(CheckFits(trace, Slots(7, 0)), IsOk());
}

TEST(CheckFitsTest, WithoutFilesTheStateMustFit) {
  Trace trace = SmallTrace();
  trace.block_slots.resize(20, 2);
  // One more block of 2 slots a moment, each needed by itself.
  for (int32_t block = 5; block < 20; ++block) {
    trace.moments.push_back({.phase = Phase::kForward,
                             .name = 0,
                             .first_use = static_cast<int64_t>(trace.uses.size()),
                             .use_count = 1,
                             .compute = 0,
                             .activation_slots = 0});
    trace.uses.push_back({.block = block, .access = BlockAccess::kRead});
  }
  EXPECT_THAT(CheckFits(trace, Slots(10, 25)), IsOk());
  EXPECT_THAT(CheckFits(trace, Slots(10, 24)),
              StatusIs(kExhausted,
                       "keeps 35 slots of 2.0 MiB for the next one; device and host "
                       "have 34, and there is no file tier"));
  Machine machine = Slots(10, 24);
  machine.has_file_tier = true;
  EXPECT_THAT(CheckFits(trace, machine), IsOk());
}

TEST(CheckFitsTest, SlotsAreOfOneSize) {
  Trace trace = SmallTrace();
  trace.slot_bytes = 1_MiB;
  EXPECT_THAT(CheckFits(trace, Slots(100, 100)),
              StatusIs(absl::StatusCode::kInvalidArgument, "slots of 1048576 bytes"));
  trace.slot_bytes = 0_B;  // unknown
  EXPECT_THAT(CheckFits(trace, Slots(100, 100)), IsOk());
  EXPECT_THAT(CheckFits(Trace{}, Slots(1, 0)), IsOk());
}

TEST(CheckFitsTest, RandomTracesNeedWhatTheirLargestMomentNeeds) {
  constexpr std::array<Phase, 2> kOperators = {Phase::kForward, Phase::kBackward};
  constexpr std::array<Phase, 1> kUpdates = {Phase::kOptimizer};
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    Trace trace = RandomTrace(dice);
    trace.slot_bytes = 0_B;
    trace.activations.clear();
    for (Moment& moment : trace.moments) {
      if (moment.phase == Phase::kOptimizer) moment.activation_slots = 0;
    }
    const int64_t operators = std::max<int64_t>(LargestNeed(trace, kOperators).slots, 1);
    const int64_t updates = LargestNeed(trace, kUpdates).slots;
    Machine machine = Slots(operators, updates);
    machine.has_file_tier = true;
    EXPECT_THAT(CheckFits(trace, machine), IsOk());
    if (operators > 1) {
      machine.device_slots = operators - 1;
      EXPECT_THAT(CheckFits(trace, machine), StatusIs(kExhausted, "on the device"));
    }
    if (updates > operators) {
      machine = Slots(operators, updates - 1);
      machine.has_file_tier = true;
      EXPECT_THAT(CheckFits(trace, machine), StatusIs(kExhausted, "the host"));
    }
  }
}

}  // namespace
}  // namespace gantry
