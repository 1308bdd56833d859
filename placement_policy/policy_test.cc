// What each policy decides, its errors, and properties over random inputs: fractions hold within
// one chunk, and no tier is asked to pin more than it holds.
#include "placement_policy/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/random.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "base/tier.h"
#include "placement_policy/machine.h"

namespace gantry {
namespace {

using absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using enum Residency;

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_({.seed = seed, .stream = 0}) {}
  int64_t Below(int64_t bound) { return random_.Below(bound, index_++); }
  // In [0, 1], the ends included.
  double Fraction() { return static_cast<double>(Below(21)) / 20.0; }

 private:
  Random random_;
  uint64_t index_ = 0;
};

constexpr ChunkFacts kTrainable{.parameter_slots = 1, .gradient_slots = 1, .optimizer_slots = 6};
constexpr ChunkFacts kTrainableF32{.parameter_slots = 2, .gradient_slots = 2, .optimizer_slots = 4};
constexpr ChunkFacts kFrozen{.parameter_slots = 1, .gradient_slots = 0, .optimizer_slots = 0};
constexpr ChunkFacts kStateless{.parameter_slots = 2, .gradient_slots = 2, .optimizer_slots = 0};

Machine RoomyMachine() {
  return {
      .slot_bytes = 2_MiB, .device_slots = 100'000, .host_slots = 100'000, .has_file_tier = true};
}
Machine UnifiedMachine(int64_t slots) {
  return {.slot_bytes = 2_MiB, .device_slots = slots, .has_file_tier = true, .unified = true};
}

absl::StatusOr<Placement> Place(std::string_view policy, const std::vector<ChunkFacts>& chunks,
                                const Machine& machine, const StaticFractions& fractions = {},
                                int64_t activation_slots = 4) {
  const auto created = CreatePolicy(policy, fractions);
  EXPECT_THAT(created, IsOk());
  if (!created.ok()) return created.status();
  EXPECT_EQ((*created)->name(), policy);
  return (*created)->Place(
      {.chunks = chunks, .machine = machine, .activation_slots_max = activation_slots});
}

void ExpectAll(const absl::StatusOr<Placement>& placement, EvictionOrder eviction,
               const ChunkPlacement& expected, size_t chunk_count) {
  ASSERT_THAT(placement, IsOk());
  EXPECT_EQ(placement->eviction, eviction);
  ASSERT_EQ(placement->chunks.size(), chunk_count);
  for (const ChunkPlacement& chunk : placement->chunks) {
    EXPECT_EQ(chunk.update_tier, expected.update_tier);
    EXPECT_EQ(chunk.parameter_on_device, expected.parameter_on_device);
    EXPECT_EQ(chunk.optimizer_on_update_tier, expected.optimizer_on_update_tier);
  }
}

TEST(PolicyTest, NamesAreCreated) {
  EXPECT_THAT(PolicyNames(),
              ::testing::ElementsAre("planned", "device", "cpu", "static", "auto", "lru"));
  for (const std::string_view name : PolicyNames()) {
    const auto policy = CreatePolicy(name, {});
    ASSERT_THAT(policy, IsOk());
    EXPECT_EQ((*policy)->name(), name);
  }
}

TEST(PolicyTest, UnknownNamesSuggestTheNearest) {
  EXPECT_THAT(CreatePolicy("statik", {}),
              StatusIs(StatusCode::kInvalidArgument, "did you mean 'static'"));
  EXPECT_THAT(CreatePolicy("cuda-like", {}),
              StatusIs(StatusCode::kInvalidArgument, "device, cpu, static, auto, lru"));
  EXPECT_THAT(CreatePolicy("", {}), StatusIs(StatusCode::kInvalidArgument));
}

TEST(PolicyTest, FractionsOutsideTheUnitIntervalAreRefused) {
  for (const double bad : {-0.001, 1.001, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(CreatePolicy("static", {.offload_parameters = bad}),
                StatusIs(StatusCode::kInvalidArgument, "offload_parameters"));
    EXPECT_THAT(CreatePolicy("static", {.offload_optimizer = bad}),
                StatusIs(StatusCode::kInvalidArgument, "offload_optimizer"));
    EXPECT_THAT(CreatePolicy("static", {.spill_optimizer = bad}),
                StatusIs(StatusCode::kInvalidArgument, "spill_optimizer"));
  }
}

TEST(PolicyTest, BadInputIsRefusedByEveryPolicy) {
  for (const std::string_view name : PolicyNames()) {
    SCOPED_TRACE(std::string(name));
    Machine machine = RoomyMachine();
    machine.device_slots = -1;
    EXPECT_THAT(Place(name, {kTrainable}, machine),
                StatusIs(StatusCode::kInvalidArgument, "device_slots"));
    for (const ChunkFacts& bad :
         {ChunkFacts{0, 1, 6}, ChunkFacts{-1, 1, 6}, ChunkFacts{1, -1, 6}, ChunkFacts{1, 1, -6},
          ChunkFacts{1, 1, std::numeric_limits<int64_t>::max()}}) {
      EXPECT_THAT(Place(name, {kTrainable, bad}, RoomyMachine()),
                  StatusIs(StatusCode::kInvalidArgument, "chunk 1 has"));
    }
    EXPECT_THAT(Place(name, {kTrainable}, RoomyMachine(), {}, -1),
                StatusIs(StatusCode::kInvalidArgument, "activation_slots_max"));
  }
}

TEST(PolicyTest, NoChunksArePlaced) {
  for (const std::string_view name : PolicyNames()) {
    const auto placement = Place(name, {}, RoomyMachine());
    ASSERT_THAT(placement, IsOk());
    EXPECT_TRUE(placement->chunks.empty());
  }
}

TEST(PolicyTest, ActivationsThatDoNotFitAreAnErrorOfEveryPolicy) {
  Machine machine = RoomyMachine();
  machine.device_slots = 10;
  for (const std::string_view name : PolicyNames()) {
    SCOPED_TRACE(std::string(name));
    const StaticFractions all_offloaded;
    EXPECT_THAT(Place(name, {kTrainable}, machine, all_offloaded, 11),
                StatusIs(StatusCode::kResourceExhausted,
                         AllOf(HasSubstr("device"), HasSubstr("it has 20971520 bytes"))));
  }
}

TEST(DevicePolicyTest, PinsEverythingOnTheDevice) {
  const ChunkPlacement expected{Tier::kDevice, kPinned, kPinned};
  ExpectAll(Place("device", {kTrainable, kFrozen}, RoomyMachine()), EvictionOrder::kFurthestNextUse,
            expected, 2);
  ExpectAll(Place("device", {kTrainable, kFrozen}, UnifiedMachine(100)),
            EvictionOrder::kFurthestNextUse, expected, 2);
}

TEST(DevicePolicyTest, TheLimitIsExact) {
  const std::vector<ChunkFacts> chunks = {kTrainable, kTrainableF32, kFrozen};  // 8 + 8 + 1
  Machine machine = RoomyMachine();
  machine.host_slots = 0;
  machine.device_slots = 17 + 4;
  EXPECT_THAT(Place("device", chunks, machine), IsOk());
  machine.device_slots = 17 + 3;
  EXPECT_THAT(Place("device", chunks, machine),
              StatusIs(StatusCode::kResourceExhausted,
                       AllOf(HasSubstr(StrCat("needs ", (21 * 2_MiB).count(), " bytes")),
                             HasSubstr(StrCat("has ", (20 * 2_MiB).count(), " bytes")))));
}

TEST(CpuPolicyTest, ParametersLeaveAfterUseAndStatesStayOnTheHost) {
  ExpectAll(Place("cpu", {kTrainable, kFrozen}, RoomyMachine()), EvictionOrder::kFurthestNextUse,
            {Tier::kHost, kTransient, kFloating}, 2);
  // Device and host are one memory: parameters are at home.
  ExpectAll(Place("cpu", {kTrainable, kFrozen}, UnifiedMachine(100)),
            EvictionOrder::kFurthestNextUse, {Tier::kDevice, kFloating, kFloating}, 2);
}

TEST(FloatingPolicyTest, DifferOnlyInTheEvictionOrder) {
  const std::vector<ChunkFacts> chunks = {kTrainable, kFrozen, kTrainableF32};
  ExpectAll(Place("auto", chunks, RoomyMachine()), EvictionOrder::kFurthestNextUse,
            {Tier::kHost, kFloating, kFloating}, 3);
  ExpectAll(Place("lru", chunks, RoomyMachine()), EvictionOrder::kLeastRecentlyUsed,
            {Tier::kHost, kFloating, kFloating}, 3);
  ExpectAll(Place("auto", chunks, UnifiedMachine(100)), EvictionOrder::kFurthestNextUse,
            {Tier::kDevice, kFloating, kFloating}, 3);
  ExpectAll(Place("lru", chunks, UnifiedMachine(100)), EvictionOrder::kLeastRecentlyUsed,
            {Tier::kDevice, kFloating, kFloating}, 3);
}

TEST(FloatingPolicyTest, OneUpdateMustFitWhereItRuns) {
  for (const std::string_view name : {"cpu", "auto", "lru"}) {
    SCOPED_TRACE(std::string(name));
    Machine machine = RoomyMachine();
    machine.host_slots = 8;
    EXPECT_THAT(Place(name, {kTrainable}, machine), IsOk());
    machine.host_slots = 7;
    EXPECT_THAT(Place(name, {kTrainable}, machine),
                StatusIs(StatusCode::kResourceExhausted,
                         AllOf(HasSubstr("the host tier needs 16777216 bytes"),
                               HasSubstr("it has 14680064 bytes"))));
    machine.host_slots = 0;  // frozen chunks are never updated
    EXPECT_THAT(Place(name, {kFrozen}, machine), IsOk());
    EXPECT_THAT(Place(name, {kTrainable}, UnifiedMachine(8)), IsOk());
    EXPECT_THAT(Place(name, {kTrainable}, UnifiedMachine(7)),
                StatusIs(StatusCode::kResourceExhausted, "device tier needs 16777216 bytes"));
  }
}

TEST(StaticPolicyTest, FirstLayersStayOnTheDevice) {
  const std::vector<ChunkFacts> chunks(10, kTrainable);
  const auto placement =
      Place("static", chunks, RoomyMachine(),
            {.offload_parameters = 0.7, .offload_optimizer = 0.8, .spill_optimizer = 0.5});
  ASSERT_THAT(placement, IsOk());
  EXPECT_EQ(placement->eviction, EvictionOrder::kFurthestNextUse);
  for (size_t i = 0; i < 10; ++i) {
    SCOPED_TRACE(StrCat("chunk ", i));
    const ChunkPlacement& chunk = placement->chunks[i];
    EXPECT_EQ(chunk.parameter_on_device, i < 3 ? kPinned : kFloating);
    EXPECT_EQ(chunk.update_tier, i < 2 ? Tier::kDevice : Tier::kHost);
    EXPECT_EQ(chunk.optimizer_on_update_tier, i < 6 ? kPinned : kTransient);
  }
}

TEST(StaticPolicyTest, EndsOfTheRange) {
  const std::vector<ChunkFacts> chunks = {kTrainable, kFrozen, kTrainableF32, kFrozen, kStateless};
  ExpectAll(Place("static", chunks, RoomyMachine(),
                  {.offload_parameters = 0, .offload_optimizer = 0, .spill_optimizer = 1}),
            EvictionOrder::kFurthestNextUse, {Tier::kDevice, kPinned, kPinned}, 5);
  ExpectAll(Place("static", chunks, RoomyMachine(),
                  {.offload_parameters = 1, .offload_optimizer = 1, .spill_optimizer = 0}),
            EvictionOrder::kFurthestNextUse, {Tier::kHost, kFloating, kPinned}, 5);
  ExpectAll(Place("static", chunks, RoomyMachine(),
                  {.offload_parameters = 1, .offload_optimizer = 1, .spill_optimizer = 1}),
            EvictionOrder::kFurthestNextUse, {Tier::kHost, kFloating, kTransient}, 5);
  // Without any states the fraction of them decides nothing but where updates run.
  ExpectAll(Place("static", {kStateless, kStateless}, RoomyMachine(),
                  {.offload_parameters = 0, .offload_optimizer = 1}),
            EvictionOrder::kFurthestNextUse, {Tier::kHost, kPinned, kPinned}, 2);
}

TEST(StaticPolicyTest, UnifiedMachinesUpdateOnTheDevice) {
  const auto placement = Place("static", std::vector<ChunkFacts>(10, kTrainable),
                               UnifiedMachine(100), {.spill_optimizer = 0.4});
  ASSERT_THAT(placement, IsOk());
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(placement->chunks[i].update_tier, Tier::kDevice);
    EXPECT_EQ(placement->chunks[i].parameter_on_device, kFloating);
    EXPECT_EQ(placement->chunks[i].optimizer_on_update_tier, i < 6 ? kPinned : kTransient);
  }
}

TEST(StaticPolicyTest, SpillingNeedsFiles) {
  Machine machine = RoomyMachine();
  machine.has_file_tier = false;
  const std::vector<ChunkFacts> chunks(10, kTrainable);
  EXPECT_THAT(Place("static", chunks, machine, {.spill_optimizer = 0.5}),
              StatusIs(StatusCode::kInvalidArgument, "no file tier"));
  EXPECT_THAT(Place("static", chunks, machine, {.spill_optimizer = 0.0}), IsOk());
  // Nothing is offloaded, so nothing is spilled.
  EXPECT_THAT(Place("static", chunks, machine, {.offload_optimizer = 0.0, .spill_optimizer = 0.5}),
              IsOk());
  EXPECT_THAT(Place("static", {kFrozen}, machine, {.spill_optimizer = 0.5}), IsOk());
}

// The value after "KNOB=" in an error message; negative when it is not there.
double SuggestedValue(std::string_view message, const std::string& knob) {
  const size_t at = message.find(knob + "=");
  if (at == std::string_view::npos) return -1.0;
  return std::stod(std::string(message.substr(at + knob.size() + 1)));
}

TEST(StaticPolicyTest, ErrorsSuggestTheLargestFractionsThatFit) {
  const std::vector<ChunkFacts> chunks(100, kTrainable);
  Machine machine = RoomyMachine();
  machine.device_slots = 4 + 60;  // 4 for activations
  const StaticFractions none{.offload_parameters = 0.0, .offload_optimizer = 1.0};
  const auto placement = Place("static", chunks, machine, none);
  EXPECT_THAT(placement,
              StatusIs(StatusCode::kResourceExhausted,
                       AllOf(HasSubstr(StrCat("needs ", (104 * 2_MiB).count(), " bytes")),
                             HasSubstr(StrCat("has ", (64 * 2_MiB).count(), " bytes")),
                             HasSubstr("offload_parameters=0.391 (at most 0.609 of the par"),
                             Not(HasSubstr("spill_optimizer=")))));
  EXPECT_THAT(Place("static", chunks, machine, {.offload_parameters = 0.391}), IsOk());
  EXPECT_THAT(Place("static", chunks, machine, {.offload_parameters = 0.390}), Not(IsOk()));
}

TEST(StaticPolicyTest, PinnedStatesCountOnce) {
  const std::vector<ChunkFacts> chunks(10, kTrainable);
  Machine machine = RoomyMachine();
  machine.host_slots = 10 * 6 + 2;  // all states, and parameter and gradient of one update
  EXPECT_THAT(Place("static", chunks, machine), IsOk());
  machine.host_slots -= 1;
  EXPECT_THAT(Place("static", chunks, machine), StatusIs(StatusCode::kResourceExhausted));
  const StaticFractions none{.offload_parameters = 0.0, .offload_optimizer = 0.0};
  machine = RoomyMachine();
  machine.device_slots = 10 * 7 + 4;  // 4 for activations are more than one gradient
  EXPECT_THAT(Place("static", chunks, machine, none), IsOk());
  machine.device_slots -= 1;
  EXPECT_THAT(Place("static", chunks, machine, none), StatusIs(StatusCode::kResourceExhausted));
}

TEST(StaticPolicyTest, HostErrorsSuggestSpilling) {
  const std::vector<ChunkFacts> chunks(100, kTrainable);
  Machine machine = RoomyMachine();
  machine.host_slots = 308;  // 50 chunks' states, and room for one spilled chunk's update
  EXPECT_THAT(Place("static", chunks, machine),
              StatusIs(StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("the host tier needs"),
                             HasSubstr("spill_optimizer=0.491 (at most 0.509 of"))));
  EXPECT_THAT(Place("static", chunks, machine, {.spill_optimizer = 0.491}), IsOk());
  EXPECT_THAT(Place("static", chunks, machine, {.spill_optimizer = 0.490}), Not(IsOk()));
  machine.host_slots = 7;
  machine.device_slots = 20;
  EXPECT_THAT(Place("static", chunks, machine),
              StatusIs(StatusCode::kResourceExhausted, "no single fraction makes it fit"));
}

std::vector<ChunkFacts> RandomChunks(Dice& dice) {
  std::vector<ChunkFacts> chunks;
  const int64_t count = 1 + dice.Below(60);
  for (int64_t i = 0; i < count; ++i) {
    constexpr std::array<ChunkFacts, 6> kKinds = {kTrainable,    kTrainable, kTrainable,
                                                  kTrainableF32, kFrozen,    kStateless};
    chunks.push_back(kKinds[static_cast<size_t>(dice.Below(6))]);
  }
  return chunks;
}

// Slots of the chunks of which `counts` is true.
int64_t Sum(const std::vector<ChunkFacts>& chunks, int64_t ChunkFacts::* slots,
            const std::function<bool(size_t)>& counts) {
  int64_t sum = 0;
  for (size_t i = 0; i < chunks.size(); ++i) sum += counts(i) ? chunks[i].*slots : 0;
  return sum;
}

// |actual - fraction x total| must be less than the largest chunk.
void ExpectWithinOneChunk(int64_t actual, double fraction, int64_t total, int64_t largest_chunk) {
  EXPECT_LE(std::abs(static_cast<double>(actual) - fraction * static_cast<double>(total)),
            static_cast<double>(largest_chunk) + 1e-6)
      << actual << " of " << total << " for a fraction of " << fraction;
}

TEST(StaticPolicyTest, FractionsHoldWithinOneChunk) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    const std::vector<ChunkFacts> chunks = RandomChunks(dice);
    const StaticFractions fractions{.offload_parameters = dice.Fraction(),
                                    .offload_optimizer = dice.Fraction(),
                                    .spill_optimizer = dice.Fraction()};
    const auto placement = Place("static", chunks, RoomyMachine(), fractions);
    ASSERT_THAT(placement, IsOk());
    const auto& placed = placement->chunks;
    const auto all = [](size_t) { return true; };
    const int64_t offloaded_parameters = Sum(chunks, &ChunkFacts::parameter_slots, [&](size_t i) {
      return placed[i].parameter_on_device != kPinned;
    });
    ExpectWithinOneChunk(offloaded_parameters, fractions.offload_parameters,
                         Sum(chunks, &ChunkFacts::parameter_slots, all), 2);
    const int64_t offloaded_states = Sum(chunks, &ChunkFacts::optimizer_slots, [&](size_t i) {
      return placed[i].update_tier == Tier::kHost;
    });
    ExpectWithinOneChunk(offloaded_states, fractions.offload_optimizer,
                         Sum(chunks, &ChunkFacts::optimizer_slots, all), 6);
    const int64_t spilled_states = Sum(chunks, &ChunkFacts::optimizer_slots, [&](size_t i) {
      return placed[i].optimizer_on_update_tier == kTransient;
    });
    ExpectWithinOneChunk(spilled_states, fractions.spill_optimizer, offloaded_states, 6);
    for (const ChunkPlacement& chunk : placed) {
      EXPECT_TRUE(chunk.update_tier == Tier::kHost || chunk.optimizer_on_update_tier == kPinned);
    }
    if (HasFailure()) return;
  }
}

Machine RandomMachine(Dice& dice) {
  Machine machine{.slot_bytes = 2_MiB,
                  .device_slots = 1 + dice.Below(200),
                  .host_slots = dice.Below(300),
                  .has_file_tier = dice.Below(4) != 0};
  if (dice.Below(3) == 0) {
    machine.unified = true;
    machine.host_slots = 0;
  }
  return machine;
}

// Pinned blocks and the activations fit the device, pinned states the host, updates never run in
// files, and on a unified machine never on the host.
void CheckPlacement(const std::vector<ChunkFacts>& chunks, const Machine& machine,
                    const Placement& placement, int64_t activation_slots) {
  ASSERT_EQ(placement.chunks.size(), chunks.size());
  int64_t device = activation_slots;
  int64_t host = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const ChunkPlacement& chunk = placement.chunks[i];
    ASSERT_NE(chunk.update_tier, Tier::kFile);
    if (machine.unified) {
      ASSERT_EQ(chunk.update_tier, Tier::kDevice);
    }
    if (chunk.parameter_on_device == kPinned) device += chunks[i].parameter_slots;
    if (chunk.optimizer_on_update_tier != kPinned) continue;
    (chunk.update_tier == Tier::kDevice ? device : host) += chunks[i].optimizer_slots;
  }
  EXPECT_LE(device, machine.device_slots);
  EXPECT_LE(host, machine.host_slots);
}

TEST(PolicyTest, NoTierPinsMoreThanItHolds) {
  std::vector<int64_t> placed(PolicyNames().size(), 0);
  std::vector<int64_t> refused(PolicyNames().size(), 0);
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    Dice dice(seed);
    const std::vector<ChunkFacts> chunks = RandomChunks(dice);
    const Machine machine = RandomMachine(dice);
    const StaticFractions fractions{.offload_parameters = dice.Fraction(),
                                    .offload_optimizer = dice.Fraction(),
                                    .spill_optimizer = dice.Fraction()};
    const int64_t activation_slots = dice.Below(20);
    for (size_t p = 0; p < PolicyNames().size(); ++p) {
      const std::string_view name = PolicyNames()[p];
      SCOPED_TRACE(StrCat("seed ", seed, " policy ", name));
      const auto placement = Place(name, chunks, machine, fractions, activation_slots);
      if (placement.ok()) {
        ++placed[p];
        CheckPlacement(chunks, machine, *placement, activation_slots);
      } else if (placement.status().code() != StatusCode::kInvalidArgument) {
        ++refused[p];
        EXPECT_THAT(placement, StatusIs(StatusCode::kResourceExhausted, "bytes"));
      }
      if (HasFailure()) return;
    }
  }
  for (size_t p = 0; p < placed.size(); ++p) {
    EXPECT_GT(placed[p], 50) << PolicyNames()[p];
    EXPECT_GT(refused[p], 50) << PolicyNames()[p];
  }
}

TEST(StaticPolicyTest, SuggestionsFitAndSmallerOnesDoNot) {
  int64_t suggestions = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    const std::vector<ChunkFacts> chunks = RandomChunks(dice);
    const Machine machine = RandomMachine(dice);
    const StaticFractions asked{.offload_parameters = dice.Fraction() / 2,
                                .offload_optimizer = dice.Fraction() / 2,
                                .spill_optimizer = dice.Fraction() / 2};
    const auto placement = Place("static", chunks, machine, asked);
    if (placement.ok() || placement.status().code() != StatusCode::kResourceExhausted) continue;
    const std::string message(FromAbsl(placement.status().message()));
    const auto check = [&](const std::string& knob, double StaticFractions::* field) {
      const double value = SuggestedValue(message, knob);
      if (value < 0.0) return;
      ++suggestions;
      StaticFractions changed = asked;
      changed.*field = value;
      EXPECT_THAT(Place("static", chunks, machine, changed), IsOk()) << message;
      changed.*field = std::max(asked.*field, value - 0.001);
      EXPECT_THAT(Place("static", chunks, machine, changed), Not(IsOk())) << message;
    };
    check("offload_parameters", &StaticFractions::offload_parameters);
    check("offload_optimizer", &StaticFractions::offload_optimizer);
    check("spill_optimizer", &StaticFractions::spill_optimizer);
  }
  EXPECT_GT(suggestions, 50);
}

}  // namespace
}  // namespace gantry
