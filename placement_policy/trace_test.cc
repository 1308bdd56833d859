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
#include "base/bytes.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/testing/random_trace.h"

namespace gantry {
namespace {

TEST(TraceTest, RandomTracesAreValid) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    ASSERT_THAT(RandomTrace(dice).Validate(), IsOk());
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

Moment& AnyMoment(Trace& trace, Dice& dice) { return dice.Pick(trace.moments); }
BlockUse& AnyUse(Trace& trace, Dice& dice) { return dice.Pick(trace.uses); }
// Makes what a corruption needs and a random trace may lack; the trace stays valid.
TraceChunk& AnyChunk(Trace& trace, Dice& dice) {
  if (trace.chunks.empty()) trace.chunks.push_back({.parameter = 0});
  return dice.Pick(trace.chunks);
}
SavedActivation& AnyActivation(Trace& trace, Dice& dice) {
  if (trace.moments.size() == 1) trace.moments.push_back(trace.moments[0]);
  if (trace.activations.empty()) trace.activations.push_back({.created = 0, .used = 1});
  return dice.Pick(trace.activations);
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

constexpr int64_t kNumberMax = int64_t{1} << 53;
// A number above the limit of times and sizes.
int64_t TooLarge(Dice& dice) { return kNumberMax + 1 + dice.Below(int64_t{1} << 62); }

std::vector<Corruption> LaterCorruptions() {
  return {
      {"].compute ", [](Trace& t, Dice& d) { AnyMoment(t, d).compute = TooLarge(d); }},
      {"].micro_batch ",
       [](Trace& t, Dice& d) {
         AnyMoment(t, d).micro_batch = static_cast<int32_t>(-1 - d.Below(1 << 30));
       }},
      {"].layer ",
       [](Trace& t, Dice& d) {
         AnyMoment(t, d).layer = static_cast<int32_t>(-2 - d.Below(1 << 30));
       }},
      {"slot_bytes is ", [](Trace& t, Dice& d) { t.slot_bytes = Bytes(Negative(d)); }},
      {"slot_bytes is ", [](Trace& t, Dice& d) { t.slot_bytes = Bytes(TooLarge(d)); }},
      {"tokens is ", [](Trace& t, Dice& d) { t.tokens = Negative(d); }},
      {"tokens is ", [](Trace& t, Dice& d) { t.tokens = TooLarge(d); }},
      {"compute and recompute sum up to ",
       [](Trace& t, Dice& d) {
         for (SavedActivation& saved : t.activations) saved.recompute = 0;
         t.moments.push_back(AnyMoment(t, d));
         t.moments.front().compute = kNumberMax;
         t.moments.back().compute = 1;
       }},
      {"compute and recompute sum up to ",
       [](Trace& t, Dice& d) {
         AnyActivation(t, d).recompute = kNumberMax;
         AnyMoment(t, d).compute = 1;
       }},
  };
}

std::vector<Corruption> ChunkCorruptions() {
  return {
      {"every chunk has one", [](Trace& t, Dice& d) { AnyChunk(t, d).parameter = -1; }},
      {"].parameter is ",
       [](Trace& t, Dice& d) {
         AnyChunk(t, d).parameter = static_cast<int32_t>(-1 - d.Below(1 << 30));
       }},
      {"].parameter is ",
       [](Trace& t, Dice& d) {
         AnyChunk(t, d).parameter =
             static_cast<int32_t>(t.block_slots.size()) + static_cast<int32_t>(d.Below(1 << 30));
       }},
      {"].gradient is ",
       [](Trace& t, Dice& d) {
         AnyChunk(t, d).gradient = static_cast<int32_t>(-2 - d.Below(1 << 30));
       }},
      {"no block of the trace",
       [](Trace& t, Dice& d) {
         AnyChunk(t, d).gradient = static_cast<int32_t>(t.block_slots.size());
         t.block_slots.push_back(0);
       }},
      {"].states[",
       [](Trace& t, Dice& d) {
         AnyChunk(t, d).states[static_cast<size_t>(d.Below(3))] =
             static_cast<int32_t>(t.block_slots.size()) + static_cast<int32_t>(d.Below(1 << 30));
       }},
      {"which another field has already",
       [](Trace& t, Dice& d) {
         TraceChunk& chunk = AnyChunk(t, d);
         chunk.states[static_cast<size_t>(d.Below(3))] = chunk.parameter;
       }},
      {"which another field has already",
       [](Trace& t, Dice& d) { t.chunks.push_back({.parameter = AnyChunk(t, d).parameter}); }},
  };
}

std::vector<Corruption> ActivationCorruptions() {
  return {
      {"].created is ",
       [](Trace& t, Dice& d) {
         AnyActivation(t, d).created = static_cast<int32_t>(-1 - d.Below(1 << 30));
       }},
      {"].created is ",
       [](Trace& t, Dice& d) {
         AnyActivation(t, d).created =
             static_cast<int32_t>(t.moments.size()) + static_cast<int32_t>(d.Below(1 << 30));
       }},
      {"].used is ",
       [](Trace& t, Dice& d) {
         SavedActivation& saved = AnyActivation(t, d);
         saved.used = saved.created - static_cast<int32_t>(d.Below(2));
       }},
      {"].used is ",
       [](Trace& t, Dice& d) {
         AnyActivation(t, d).used =
             static_cast<int32_t>(t.moments.size()) + static_cast<int32_t>(d.Below(1 << 30));
       }},
      {"].slots is ", [](Trace& t, Dice& d) { AnyActivation(t, d).slots = Negative(d); }},
      {"].slots is ",
       [](Trace& t, Dice& d) {
         AnyActivation(t, d).slots = (int64_t{1} << 40) + 1 + d.Below(int64_t{1} << 62);
       }},
      {"].recompute is ", [](Trace& t, Dice& d) { AnyActivation(t, d).recompute = Negative(d); }},
      {"].recompute is ", [](Trace& t, Dice& d) { AnyActivation(t, d).recompute = TooLarge(d); }},
      {"fewer than the saved activations",
       [](Trace& t, Dice& d) {
         SavedActivation& saved = AnyActivation(t, d);
         saved.slots += 20 + d.Below(int64_t{1} << 39);
       }},
      {"activations has 4194305 entries",
       [](Trace& t, Dice& d) {
         AnyActivation(t, d).slots = 0;
         t.activations.assign((size_t{1} << 22) + 1, t.activations[0]);
       }},
  };
}

void ExpectNamed(const std::vector<Corruption>& corruptions, uint64_t seeds) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
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

TEST(TraceTest, EveryCorruptedFieldIsNamed) {
  ExpectNamed(Corruptions(), 100);
  ExpectNamed(LaterCorruptions(), 100);
  ExpectNamed(ChunkCorruptions(), 100);
  std::vector<Corruption> activations = ActivationCorruptions();
  ExpectNamed({activations.back()}, 1);  // it is large
  activations.pop_back();
  ExpectNamed(activations, 100);
}

TEST(TraceTest, LimitsThemselvesAreValid) {
  Dice dice(3);
  Trace trace = RandomTrace(dice);
  for (Moment& moment : trace.moments) moment.compute = 0;
  for (SavedActivation& saved : trace.activations) saved.recompute = 0;
  trace.moments[0].compute = kNumberMax;
  trace.slot_bytes = Bytes(kNumberMax);
  trace.tokens = kNumberMax;
  trace.moments[0].layer = -1;
  EXPECT_THAT(trace.Validate(), IsOk());
}

// Overwrites one random field, with random bits or a small number that may be valid.
void CorruptAnything(Trace& trace, Dice& dice) {
  const int64_t value =
      dice.Below(2) == 0 ? dice.Below(6) : static_cast<int64_t>(dice.Bits()) >> dice.Below(64);
  const auto any = [&](auto& items) -> auto& {
    return items[static_cast<size_t>(dice.Below(static_cast<int64_t>(items.size())))];
  };
  switch (dice.Below(19)) {
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
    case 9:
      any(trace.moments).micro_batch = static_cast<int32_t>(value);
      return;
    case 10:
      any(trace.moments).layer = static_cast<int32_t>(value);
      return;
    case 11:
      AnyChunk(trace, dice).parameter = static_cast<int32_t>(value);
      return;
    case 12:
      AnyChunk(trace, dice).states[static_cast<size_t>(dice.Below(3))] =
          static_cast<int32_t>(value);
      return;
    case 13:
      AnyActivation(trace, dice).created = static_cast<int32_t>(value);
      return;
    case 14:
      AnyActivation(trace, dice).used = static_cast<int32_t>(value);
      return;
    case 15:
      AnyActivation(trace, dice).slots = value;
      return;
    case 16:
      AnyActivation(trace, dice).recompute = value;
      return;
    case 17:
      trace.tokens = value;
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
  const auto moment_count = static_cast<int64_t>(trace.moments.size());
  const auto is_block = [&](int32_t block) {
    if (block < 0 || block >= static_cast<int64_t>(trace.block_slots.size())) return false;
    const int8_t slots = trace.block_slots[static_cast<size_t>(block)];
    return slots == 1 || slots == 2;
  };
  const auto none_or_block = [&](int32_t block) { return block == -1 || is_block(block); };
  return std::ranges::all_of(trace.uses, is_block, &BlockUse::block) &&
         std::ranges::all_of(trace.chunks,
                             [&](const TraceChunk& c) {
                               return is_block(c.parameter) && none_or_block(c.gradient) &&
                                      std::ranges::all_of(c.states, none_or_block);
                             }) &&
         std::ranges::all_of(trace.activations,
                             [&](const SavedActivation& s) {
                               return s.created >= 0 && s.created < s.used &&
                                      s.used < moment_count && s.slots >= 0 && s.recompute >= 0;
                             }) &&
         std::ranges::all_of(trace.moments, [&](const Moment& m) {
           return m.name >= 0 && m.name < static_cast<int64_t>(trace.names.size()) &&
                  m.first_use >= 0 && m.use_count >= 0 && m.first_use <= use_count &&
                  m.use_count <= use_count - m.first_use && m.compute >= 0 &&
                  m.activation_slots >= 0 && m.micro_batch >= 0 && m.layer >= -1;
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
