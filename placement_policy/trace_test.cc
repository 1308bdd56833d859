// Random traces against brute force, single corrupted fields by name, and arbitrary corrupted
// bytes: whatever Validate lets through must be safe to use.
#include "placement_policy/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/random.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

constexpr std::array<Phase, 3> kAllPhases = {Phase::kForward, Phase::kBackward, Phase::kOptimizer};

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_({.seed = seed, .stream = 0}) {}
  int64_t Below(int64_t bound) { return random_.Below(bound, index_++); }
  uint64_t Bits() { return random_.Bits(index_++); }

 private:
  Random random_;
  uint64_t index_ = 0;
};

// A valid trace with some absent blocks (0 slots), empty moments and repeated uses. Never empty.
Trace RandomTrace(Dice& dice) {
  Trace trace;
  std::vector<int32_t> present;
  const int64_t block_count = 1 + dice.Below(12);
  for (int32_t block = 0; block < block_count; ++block) {
    trace.block_slots.push_back(static_cast<int8_t>(block == 0 ? 1 : dice.Below(3)));
    if (trace.block_slots.back() > 0) present.push_back(block);
  }
  trace.names = {"matmul", "norm", "update"};
  const int64_t moment_count = 1 + dice.Below(20);
  for (int64_t m = 0; m < moment_count; ++m) {
    const int64_t use_count = dice.Below(5);
    trace.moments.push_back({.phase = kAllPhases[static_cast<size_t>(dice.Below(3))],
                             .name = static_cast<int32_t>(dice.Below(3)),
                             .first_use = static_cast<int64_t>(trace.uses.size()),
                             .use_count = use_count,
                             .compute = dice.Below(1000),
                             .activation_slots = dice.Below(8)});
    for (int64_t u = 0; u < use_count; ++u) {
      const auto pick = static_cast<size_t>(dice.Below(static_cast<int64_t>(present.size())));
      trace.uses.push_back(
          {.block = present[pick], .access = static_cast<BlockAccess>(dice.Below(4))});
    }
  }
  if (trace.uses.empty()) {
    trace.uses.push_back({.block = 0, .access = BlockAccess::kRead});
    trace.moments[0].use_count = 1;
    trace.moments[0].first_use = 0;
  }
  return trace;
}

TEST(TraceTest, RandomTracesAreValid) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    EXPECT_THAT(RandomTrace(dice).Validate(), IsOk());
  }
}

TEST(TraceTest, EmptyTraceIsValid) {
  const Trace trace;
  EXPECT_THAT(trace.Validate(), IsOk());
  const SlotNeed need = LargestNeed(trace, kAllPhases);
  EXPECT_EQ(need.slots, 0);
  EXPECT_EQ(need.moment, -1);
  EXPECT_EQ(NextUseIndex(trace).moment_count(), 0);
}

TEST(TraceTest, UsesOfAMoment) {
  Dice dice(7);
  const Trace trace = RandomTrace(dice);
  for (const Moment& moment : trace.moments) {
    const auto uses = trace.uses_of(moment);
    EXPECT_EQ(static_cast<int64_t>(uses.size()), moment.use_count);
    if (!uses.empty()) {
      EXPECT_EQ(uses.data(), trace.uses.data() + moment.first_use);
    }
  }
}

// One way to break a trace, and what the message must name.
struct Corruption {
  std::string field;
  std::function<void(Trace&, Dice&)> apply;
};

Moment& AnyMoment(Trace& trace, Dice& dice) {
  return trace.moments[static_cast<size_t>(dice.Below(static_cast<int64_t>(trace.moments.size())))];
}
BlockUse& AnyUse(Trace& trace, Dice& dice) {
  return trace.uses[static_cast<size_t>(dice.Below(static_cast<int64_t>(trace.uses.size())))];
}
// A random negative number, near or far.
int64_t Negative(Dice& dice) { return -1 - dice.Below(int64_t{1} << (1 + dice.Below(62))); }

std::vector<Corruption> Corruptions() {
  return {
      {"block_slots[",
       [](Trace& t, Dice& d) {
         auto& slots = t.block_slots[static_cast<size_t>(
             d.Below(static_cast<int64_t>(t.block_slots.size())))];
         slots = static_cast<int8_t>(d.Below(2) == 0 ? 3 + d.Below(125) : -1 - d.Below(128));
       }},
      {"].block ",
       [](Trace& t, Dice& d) { AnyUse(t, d).block = static_cast<int32_t>(-1 - d.Below(1 << 30)); }},
      {"].block ",
       [](Trace& t, Dice& d) {
         AnyUse(t, d).block =
             static_cast<int32_t>(t.block_slots.size()) + static_cast<int32_t>(d.Below(1 << 30));
       }},
      {"does not exist",
       [](Trace& t, Dice& d) {
         AnyUse(t, d).block = static_cast<int32_t>(t.block_slots.size());
         t.block_slots.push_back(0);
       }},
      {"].access ",
       [](Trace& t, Dice& d) { AnyUse(t, d).access = static_cast<BlockAccess>(4 + d.Below(252)); }},
      {"].phase ",
       [](Trace& t, Dice& d) { AnyMoment(t, d).phase = static_cast<Phase>(3 + d.Below(253)); }},
      {"].name ",
       [](Trace& t, Dice& d) {
         AnyMoment(t, d).name =
             static_cast<int32_t>(d.Below(2) == 0 ? -1 - d.Below(1 << 30) : 3 + d.Below(1 << 30));
       }},
      {"].first_use ", [](Trace& t, Dice& d) { AnyMoment(t, d).first_use = Negative(d); }},
      {"].first_use ",
       [](Trace& t, Dice& d) {
         AnyMoment(t, d).first_use =
             static_cast<int64_t>(t.uses.size()) + 1 + d.Below(int64_t{1} << 62);
       }},
      {"].use_count ", [](Trace& t, Dice& d) { AnyMoment(t, d).use_count = Negative(d); }},
      {"].use_count ",
       [](Trace& t, Dice& d) {
         Moment& moment = AnyMoment(t, d);
         // Up to the largest number, so that an unchecked sum with first_use would overflow.
         const int64_t rest = static_cast<int64_t>(t.uses.size()) - moment.first_use;
         moment.use_count = d.Below(4) == 0 ? std::numeric_limits<int64_t>::max()
                                            : rest + 1 + d.Below(int64_t{1} << 62);
       }},
      {"].compute ", [](Trace& t, Dice& d) { AnyMoment(t, d).compute = Negative(d); }},
      {"].activation_slots ",
       [](Trace& t, Dice& d) { AnyMoment(t, d).activation_slots = Negative(d); }},
      {"].activation_slots ",
       [](Trace& t, Dice& d) {
         AnyMoment(t, d).activation_slots = (int64_t{1} << 41) + d.Below(int64_t{1} << 62);
       }},
  };
}

TEST(TraceTest, EveryCorruptedFieldIsNamed) {
  const std::vector<Corruption> corruptions = Corruptions();
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    for (size_t kind = 0; kind < corruptions.size(); ++kind) {
      SCOPED_TRACE(StrCat("seed ", seed, " corruption ", kind));
      Dice dice(seed);
      Trace trace = RandomTrace(dice);
      corruptions[kind].apply(trace, dice);
      ASSERT_THAT(trace.Validate(),
                  StatusIs(absl::StatusCode::kInvalidArgument, corruptions[kind].field));
    }
  }
}

// Overwrites one random field, with random bits or a small number that may be valid.
void CorruptAnything(Trace& trace, Dice& dice) {
  const int64_t value =
      dice.Below(2) == 0 ? dice.Below(6) : static_cast<int64_t>(dice.Bits()) >> dice.Below(64);
  const auto any = [&](auto& items) -> auto& {
    return items[static_cast<size_t>(dice.Below(static_cast<int64_t>(items.size())))];
  };
  switch (dice.Below(10)) {
    case 0:
      any(trace.block_slots) = static_cast<int8_t>(value);
      return;
    case 1:
      any(trace.uses).block = static_cast<int32_t>(value);
      return;
    case 2:
      any(trace.uses).access = static_cast<BlockAccess>(value);
      return;
    case 3:
      any(trace.moments).phase = static_cast<Phase>(value);
      return;
    case 4:
      any(trace.moments).name = static_cast<int32_t>(value);
      return;
    case 5:
      any(trace.moments).first_use = value;
      return;
    case 6:
      any(trace.moments).use_count = value;
      return;
    case 7:
      any(trace.moments).compute = value;
      return;
    case 8:
      any(trace.moments).activation_slots = value;
      return;
    default:
      trace.uses.resize(
          static_cast<size_t>(dice.Below(static_cast<int64_t>(trace.uses.size()) + 1)));
      if (trace.uses.empty()) trace.uses.push_back({.block = 0, .access = BlockAccess::kRead});
  }
}

// Whether every index of the trace is in range: the least that its users rely on.
bool IsSafe(const Trace& trace) {
  const auto use_count = static_cast<int64_t>(trace.uses.size());
  for (const BlockUse& use : trace.uses) {
    if (use.block < 0 || use.block >= static_cast<int64_t>(trace.block_slots.size())) return false;
    const int8_t slots = trace.block_slots[static_cast<size_t>(use.block)];
    if (slots != 1 && slots != 2) return false;
  }
  return std::ranges::all_of(trace.moments, [&](const Moment& m) {
    return m.name >= 0 && m.name < static_cast<int64_t>(trace.names.size()) && m.first_use >= 0 &&
           m.use_count >= 0 && m.first_use <= use_count && m.use_count <= use_count - m.first_use &&
           m.compute >= 0 && m.activation_slots >= 0;
  });
}

TEST(TraceFuzzTest, WhatValidateAcceptsIsSafeToUse) {
  int64_t accepted = 0;
  int64_t refused = 0;
  for (uint64_t seed = 1; seed <= 5000; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    Trace trace = RandomTrace(dice);
    const int64_t corruption_count = 1 + dice.Below(3);
    for (int64_t i = 0; i < corruption_count; ++i) CorruptAnything(trace, dice);
    if (const absl::Status status = trace.Validate(); !status.ok()) {
      ASSERT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "trace: "));
      ++refused;
      continue;
    }
    ++accepted;
    ASSERT_TRUE(IsSafe(trace));
    ASSERT_GE(LargestNeed(trace, kAllPhases).slots, 0);
    const NextUseIndex index(trace);
    for (int32_t block = 0; block < static_cast<int32_t>(trace.block_slots.size()); ++block) {
      ASSERT_GT(index.NextUse(block, 0), 0);
    }
  }
  // Both outcomes must be common, else this test says little.
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 500);
}

SlotNeed BruteForceNeed(const Trace& trace, const std::set<Phase>& phases) {
  SlotNeed best{.slots = 0, .activation_slots = 0, .block_slots = 0, .moment = -1};
  for (size_t m = 0; m < trace.moments.size(); ++m) {
    if (!phases.contains(trace.moments[m].phase)) continue;
    std::set<int32_t> blocks;
    for (const BlockUse& use : trace.uses_of(trace.moments[m])) blocks.insert(use.block);
    int64_t block_slots = 0;
    for (const int32_t block : blocks) block_slots += trace.block_slots[static_cast<size_t>(block)];
    const int64_t slots = trace.moments[m].activation_slots + block_slots;
    if (best.moment < 0 || slots > best.slots) {
      best = {slots, trace.moments[m].activation_slots, block_slots, static_cast<int64_t>(m)};
    }
  }
  return best;
}

TEST(LargestNeedTest, AgreesWithBruteForce) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    const Trace trace = RandomTrace(dice);
    for (unsigned subset = 0; subset < 8; ++subset) {
      std::vector<Phase> phases;
      for (unsigned i = 0; i < 3; ++i) {
        if ((subset >> i & 1u) != 0) phases.push_back(kAllPhases[i]);
      }
      const SlotNeed need = LargestNeed(trace, phases);
      const SlotNeed expected = BruteForceNeed(trace, {phases.begin(), phases.end()});
      EXPECT_EQ(need.slots, expected.slots);
      EXPECT_EQ(need.activation_slots, expected.activation_slots);
      EXPECT_EQ(need.block_slots, expected.block_slots);
      EXPECT_EQ(need.moment, expected.moment);
    }
  }
}

int64_t BruteForceNextUse(const Trace& trace, int32_t block, int64_t now) {
  const auto moment_count = static_cast<int64_t>(trace.moments.size());
  for (int64_t time = now + 1; time <= now + moment_count; ++time) {
    const auto moment = static_cast<size_t>((time + moment_count) % moment_count);
    for (const BlockUse& use : trace.uses_of(trace.moments[moment])) {
      if (use.block == block) return time;
    }
  }
  return NextUseIndex::kNever;
}

TEST(NextUseIndexTest, AgreesWithBruteForce) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    const Trace trace = RandomTrace(dice);
    const NextUseIndex index(trace);
    const int64_t moment_count = index.moment_count();
    ASSERT_EQ(moment_count, static_cast<int64_t>(trace.moments.size()));
    for (int32_t block = 0; block < static_cast<int32_t>(trace.block_slots.size()); ++block) {
      for (int64_t now = -moment_count; now < 3 * moment_count; ++now) {
        ASSERT_EQ(index.NextUse(block, now), BruteForceNextUse(trace, block, now))
            << "block " << block << " after " << now;
      }
    }
  }
}

TEST(NextUseIndexTest, ReachesAcrossTheStepBorder) {
  Trace trace;
  trace.block_slots = {1, 1, 1};
  trace.names = {"op"};
  trace.uses = {{.block = 0, .access = BlockAccess::kRead},
                {.block = 1, .access = BlockAccess::kRead}};
  for (int64_t m = 0; m < 2; ++m) {
    trace.moments.push_back({.phase = Phase::kForward,
                             .name = 0,
                             .first_use = m,
                             .use_count = 1,
                             .compute = 0,
                             .activation_slots = 0});
  }
  const NextUseIndex index(trace);
  EXPECT_EQ(index.NextUse(0, -1), 0);
  EXPECT_EQ(index.NextUse(0, 0), 2);
  EXPECT_EQ(index.NextUse(1, 0), 1);
  EXPECT_EQ(index.NextUse(1, 1), 3);
  EXPECT_EQ(index.NextUse(2, 0), NextUseIndex::kNever);
  const int64_t late = int64_t{1} << 60;
  EXPECT_EQ(index.NextUse(0, late), late + 2);
}

TEST(NextUseIndexDeathTest, ProgrammerErrorsAbort) {
  Trace trace;
  trace.block_slots = {1};
  const NextUseIndex index(trace);
  EXPECT_DEATH(index.NextUse(1, 0), "block 1 of 1");
  EXPECT_DEATH(index.NextUse(-1, 0), "block -1 of 1");
  trace.block_slots = {7};
  EXPECT_DEATH(NextUseIndex{trace}, "block_slots");
}

}  // namespace
}  // namespace gantry
