// The comparison of ways to run a step: the best of them is chosen, what does not fit says why, and
// layer-major steps fetch each chunk about twice instead of twice a micro-batch.
#include "placement_policy/plan_alternatives.h"

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/machine.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/planner.h"
#include "placement_policy/simulator.h"
#include "placement_policy/synthetic_trace.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMicroBatches = 6;
constexpr int64_t kChunkElements = int64_t{1} << 20;

// Layers of 12.6 million parameters.
ModelShape Shape() {
  return {.layers = 16,
          .width = 1024,
          .heads = 16,
          .kv_heads = 16,
          .head_dim = 64,
          .ffn_width = 2816,
          .vocabulary = 4000};
}

struct Way {
  MicroBatchOrder order = MicroBatchOrder::kMicroBatchMajor;
  Recomputation recomputation = Recomputation::kFull;
};

std::vector<Way> AllWays() {
  return {{MicroBatchOrder::kMicroBatchMajor, Recomputation::kNone},
          {MicroBatchOrder::kMicroBatchMajor, Recomputation::kFull},
          {MicroBatchOrder::kLayerMajor, Recomputation::kNone},
          {MicroBatchOrder::kLayerMajor, Recomputation::kFull}};
}

Machine MachineWith(int64_t device_bytes) {
  Machine machine;
  machine.device_slots = device_bytes;  // in slots once their size is known
  machine.host_slots = int64_t{16} << 30;
  machine.rates.host_to_device = {.bytes_per_second = 25'000'000'000};
  machine.rates.device_to_host = {.bytes_per_second = 25'000'000'000};
  machine.rates.host_update_bytes_per_second = 160'000'000'000;
  machine.rates.device_memory_bytes_per_second = 1'900'000'000'000;
  return machine;
}

absl::StatusOr<PlanInput> InputOf(const Way& way, int64_t device_bytes, int64_t chunk_elements) {
  PlanInput input;
  GANTRY_ASSIGN_OR_RETURN(input.trace, SyntheticTrace(Shape(), {.chunk_elements = chunk_elements,
                                                                .sequence_length = 512,
                                                                .micro_batches = kMicroBatches,
                                                                .order = way.order,
                                                                .recomputation = way.recomputation,
                                                                .flops_per_second = 156e12}));
  input.machine = MachineWith(device_bytes);
  input.machine.slot_bytes = input.trace.slot_bytes;
  input.machine.device_slots /= input.trace.slot_bytes.count();
  input.machine.host_slots /= input.trace.slot_bytes.count();
  return input;
}

PlanAlternativesInput Compare(const std::vector<Way>& ways, int64_t device_bytes) {
  return {.count = std::ssize(ways),
          .make =
              [ways, device_bytes](int64_t number, int64_t coarseness) {
                return InputOf(ways[static_cast<size_t>(number)], device_bytes,
                               kChunkElements * coarseness);
              },
          .allowed = {}};
}

class PlanAlternativesBestTest : public ::testing::TestWithParam<bool> {};

TEST_P(PlanAlternativesBestTest, TheBestIsChosen) {
  const PlannerOptions options = {.placements_max = 24, .move_activations = GetParam()};
  for (const int64_t megabytes : {120, 300, 1200}) {
    SCOPED_TRACE(megabytes);
    const int64_t device = megabytes << 20;
    const auto best = PlanAlternatives(Compare(AllWays(), device), options);
    ASSERT_THAT(best, IsOk());
    ASSERT_EQ(best->tried.size(), 4);
    const TriedAlternative& chosen = best->tried[static_cast<size_t>(best->chosen)];
    EXPECT_THAT(chosen.status, IsOk());
    EXPECT_TRUE(chosen.in_full);
    EXPECT_EQ(chosen.predicted, best->decision.predicted.elapsed);
    for (size_t i = 0; i < 4; ++i) {
      const TriedAlternative& tried = best->tried[i];
      const auto input = InputOf(AllWays()[i], device, kChunkElements);
      ASSERT_THAT(input, IsOk());
      const auto alone = PlanMovement(input->trace, input->machine, options);
      if (!alone.ok()) {
        EXPECT_THAT(tried.status, StatusIs(absl::StatusCode::kResourceExhausted));
        continue;
      }
      // What was found with coarse chunks may be wrong by this much.
      EXPECT_LE(static_cast<double>(chosen.predicted),
                1.05 * static_cast<double>(alone->predicted.elapsed))
          << i;
      EXPECT_GE(static_cast<double>(alone->predicted.elapsed),
                0.97 * static_cast<double>(tried.bound))
          << i;
      if (tried.in_full) {
        EXPECT_GE(tried.predicted, chosen.predicted);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(MoveActivations, PlanAlternativesBestTest, ::testing::Bool());

constexpr PlannerOptions kKeepActivations = {.placements_max = 20, .move_activations = false};

TEST(PlanAlternativesTest, WhatIsTightGoesLayerByLayer) {
  const std::vector<Way> ways = {{MicroBatchOrder::kMicroBatchMajor, Recomputation::kFull},
                                 {MicroBatchOrder::kLayerMajor, Recomputation::kFull}};
  const auto best = PlanAlternatives(Compare(ways, int64_t{200} << 20), kKeepActivations);
  ASSERT_THAT(best, IsOk());
  EXPECT_EQ(best->chosen, 1);
}

TEST(PlanAlternativesTest, OfEqualsTheFirstIsChosen) {
  const auto best =
      PlanAlternatives(Compare({Way{}, Way{}, Way{}}, int64_t{200} << 20), kKeepActivations);
  ASSERT_THAT(best, IsOk());
  EXPECT_EQ(best->chosen, 0);
  EXPECT_EQ(best->tried[0].predicted, best->tried[2].predicted);
}

TEST(PlanAlternativesTest, EqualArgumentsGiveEqualPlans) {
  const auto one = PlanAlternatives(Compare(AllWays(), int64_t{200} << 20), kKeepActivations);
  const auto other = PlanAlternatives(Compare(AllWays(), int64_t{200} << 20), kKeepActivations);
  ASSERT_THAT(one, IsOk());
  ASSERT_THAT(other, IsOk());
  EXPECT_EQ(one->chosen, other->chosen);
  EXPECT_EQ(one->decision.hash, other->decision.hash);
}

TEST(PlanAlternativesTest, OneWayIsWhatThePlannerSays) {
  const int64_t device = int64_t{200} << 20;
  const auto best = PlanAlternatives(Compare({Way{}}, device), {.placements_max = 20});
  ASSERT_THAT(best, IsOk());
  const auto input = InputOf(Way{}, device, kChunkElements);
  const auto alone = PlanMovement(input->trace, input->machine, {.placements_max = 20});
  ASSERT_THAT(alone, IsOk());
  EXPECT_EQ(best->decision.hash, alone->hash);
}

TEST(PlanAlternativesTest, ErrorsSayWhy) {
  EXPECT_THAT(PlanAlternatives({.count = 0, .make = {}, .allowed = {}}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  // The first one's reason.
  EXPECT_THAT(
      PlanAlternatives(Compare(AllWays(), 4 << 20), kKeepActivations),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("slots of 2.0 MiB at once")));
  // Anything else than too little memory ends it.
  PlanAlternativesInput broken = Compare(AllWays(), int64_t{1} << 30);
  broken.make = [make = broken.make](int64_t number, int64_t coarseness) {
    return number == 2 ? absl::StatusOr<PlanInput>(Internal("broken")) : make(number, coarseness);
  };
  EXPECT_THAT(PlanAlternatives(broken, {}), StatusIs(absl::StatusCode::kInternal, "broken"));
  // Coarse chunks that cannot be made are done without.
  PlanAlternativesInput exact = Compare(AllWays(), int64_t{1} << 30);
  exact.make = [make = exact.make](int64_t number, int64_t coarseness) {
    return coarseness > 1 ? absl::StatusOr<PlanInput>(InvalidArgument("too coarse"))
                          : make(number, coarseness);
  };
  EXPECT_THAT(PlanAlternatives(exact, {.placements_max = 10}), IsOk());
}

TEST(PlanAlternativesTest, WhatIsNotAllowedIsNotChosen) {
  // Both are as fast, and so planned as they are.
  PlanAlternativesInput ways = Compare({Way{}, Way{}}, int64_t{600} << 20);
  ways.make = [make = ways.make](int64_t number, int64_t coarseness) {
    absl::StatusOr<PlanInput> input = make(number, coarseness);
    if (input.ok()) input->machine.host_slots += number;
    return input;
  };
  const int64_t host_slots = ways.make(0, 1)->machine.host_slots;
  ways.allowed = [host_slots](const PlanInput& input, const MovementDecision&) -> absl::Status {
    if (input.machine.host_slots == host_slots) return ResourceExhausted("not this one");
    return absl::OkStatus();
  };
  const auto best = PlanAlternatives(ways, kKeepActivations);
  ASSERT_THAT(best, IsOk());
  EXPECT_EQ(best->chosen, 1);
  EXPECT_THAT(best->tried[0].status,
              StatusIs(absl::StatusCode::kResourceExhausted, "not this one"));
  ways.allowed = [](const PlanInput&, const MovementDecision&) {
    return ResourceExhausted("none of them");
  };
  EXPECT_THAT(PlanAlternatives(ways, {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "none of them"));
}

// Where next to nothing can stay, chunks are fetched at each use: once forward and once backward,
// and that for each micro-batch, or once for all. One by one, gradients are fetched as well, for
// each micro-batch but the first to add to.
TEST(PlanAlternativesTest, LayerMajorFetchesEachChunkAboutTwice) {
  constexpr Phase kPhases[] = {Phase::kForward, Phase::kBackward};
  for (const auto& [order, least, most] :
       {std::tuple(MicroBatchOrder::kMicroBatchMajor, 1.7 * kMicroBatches, 3.0 * kMicroBatches - 1),
        std::tuple(MicroBatchOrder::kLayerMajor, 1.7, 2.0)}) {
    auto input = InputOf({order, Recomputation::kFull}, int64_t{1} << 30, kChunkElements);
    ASSERT_THAT(input, IsOk());
    // Room for one layer's parameters and gradients, of sixteen.
    const auto layer = std::ssize(input->trace.chunks) / 16;
    input->machine.device_slots = LargestNeed(input->trace, kPhases).slots + 2 * layer;
    const auto plan = PlanMovement(input->trace, input->machine,
                                   {.placements_max = 4, .host_updates_only = true});
    ASSERT_THAT(plan, IsOk());
    const auto lane = static_cast<size_t>(SimulatedLane::kHostToDevice);
    const double fetches = static_cast<double>(plan->predicted.bytes[lane]) /
                           static_cast<double>(input->trace.slot_bytes.count()) /
                           static_cast<double>(input->trace.chunks.size());
    EXPECT_GE(fetches, least) << static_cast<int>(order);
    EXPECT_LE(fetches, most * 1.05) << static_cast<int>(order);
  }
}

TEST(PlanAlternativesTest, ChunksOfAnotherSizeTakeAboutAsLong) {
  const int64_t device = int64_t{200} << 20;
  const auto input = InputOf(Way{}, device, kChunkElements);
  const auto plan = PlanMovement(input->trace, input->machine, {.host_updates_only = true});
  ASSERT_THAT(plan, IsOk());
  for (const double factor : {0.5, 1.0, 2.0}) {
    const auto other = InputOf(Way{}, device, static_cast<int64_t>(factor * kChunkElements));
    const auto time = TimeWithOtherChunks(*plan, *input, *other, {.host_updates_only = true});
    ASSERT_THAT(time, IsOk());
    EXPECT_NEAR(static_cast<double>(*time) / static_cast<double>(plan->predicted.elapsed), 1.0,
                0.15)
        << factor;
  }
  const auto large = InputOf(Way{}, device, 32 * kChunkElements);
  EXPECT_THAT(TimeWithOtherChunks(*plan, *input, *large, {}),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace gantry
