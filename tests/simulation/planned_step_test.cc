// Whether the engine does what its plans promise: synthetic steps replayed on it in virtual time.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>

#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/synthetic_trace.h"
#include "tests/simulation/trace_replay.h"

namespace gantry {
namespace {

// Times of one slot of 32 MiB, and of operators, on a machine like these.
struct Speeds {
  const char* name;
  double flops_per_second;
  Nanoseconds copy;
  Nanoseconds update;
};
constexpr Speeds k4090 = {"4090", 82e12, 1'342'177, 559'240};
constexpr Speeds kA100 = {"A100", 156e12, 1'342'177, 209'715};
constexpr Speeds kH100 = {"H100", 445e12, 1'342'177, 134'217};

struct Case {
  const char* name;
  Speeds speeds;
  int64_t tokens;
  double budget;  // of the state
  bool wait_for_norm;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class PlannedStepTest : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr double kNoiseless = 0.0;

  void SetUp() override {
    const Case& c = GetParam();
    const auto shape = BuiltInModel("llama2-7b");
    ASSERT_THAT(shape, IsOk());
    const auto trace = SyntheticTrace(*shape, {.sequences = c.tokens / 2048,
                                               .sequence_length = 2048,
                                               .recomputation = Recomputation::kFull,
                                               .flops_per_second = c.speeds.flops_per_second});
    ASSERT_THAT(trace, IsOk());
    trace_ = *trace;
    for (const int8_t slots : trace_.block_slots) state_ += slots;
  }

  absl::StatusOr<ReplayResult> Replay(const std::string& policy, double noise) {
    const Case& c = GetParam();
    return ReplayTrace(
        {.trace = &trace_,
         .policy = policy,
         .device_slots = static_cast<int64_t>(c.budget * static_cast<double>(state_)),
         .host_slots = state_ + 64,
         .copy_per_slot = c.speeds.copy,
         .update_per_slot = c.speeds.update,
         .noise = noise,
         .wait_for_norm = c.wait_for_norm,
         .steps = 6});
  }

  static double Seconds(Nanoseconds time) { return static_cast<double>(time) / 1e9; }

  Trace trace_;
  int64_t state_ = 0;
};

TEST_P(PlannedStepTest, TakesAsLongAsPredicted) {
  const auto planned = Replay("planned", kNoiseless);
  ASSERT_THAT(planned, IsOk());
  ASSERT_TRUE(planned->report.planned) << ::testing::PrintToString(planned->messages);
  const double predicted = Seconds(planned->report.predicted);
  const double measured = Seconds(planned->steps.back().elapsed);
  std::cout << "predicted " << predicted << " s, measured " << measured << " s, compute "
            << Seconds(planned->steps.back().compute) << " s\n";
  EXPECT_NEAR(measured / predicted, 1.0, 0.02);
  const auto reactive = Replay("auto", kNoiseless);
  ASSERT_THAT(reactive, IsOk());
  EXPECT_LT(measured, 1.02 * Seconds(reactive->steps.back().elapsed));
  const auto on_demand = Replay("cpu", kNoiseless);
  ASSERT_THAT(on_demand, IsOk());
  EXPECT_LT(measured, Seconds(on_demand->steps.back().elapsed));
}

// The order of the plan is kept, not its times: a step whose operators vary takes as long as one
// whose operators take what they take on average, or little more.
TEST_P(PlannedStepTest, NoiseCostsLittle) {
  const auto calm = Replay("planned", kNoiseless);
  const auto noisy = Replay("planned", 0.2);
  ASSERT_THAT(calm, IsOk());
  ASSERT_THAT(noisy, IsOk());
  const ReplayedStep& calm_step = calm->steps.back();
  const ReplayedStep& noisy_step = noisy->steps.back();
  const double more_compute = Seconds(noisy_step.compute - calm_step.compute);
  EXPECT_LT(Seconds(noisy_step.elapsed),
            1.01 * (Seconds(calm_step.elapsed) + std::max(more_compute, 0.0)));
}

// Four micro-batches in both orders: each takes as long as predicted, and so does the difference.
TEST(PlannedOrderTest, LayerByLayerGainsWhatIsPredicted) {
  const auto shape = BuiltInModel("llama2-7b");
  ASSERT_THAT(shape, IsOk());
  double predicted_gain = 1.0;
  double measured_gain = 1.0;
  for (const MicroBatchOrder order :
       {MicroBatchOrder::kMicroBatchMajor, MicroBatchOrder::kLayerMajor}) {
    auto trace = SyntheticTrace(*shape, {.sequences = 1,
                                         .sequence_length = 1024,
                                         .micro_batches = 4,
                                         .order = order,
                                         .recomputation = Recomputation::kFull,
                                         .flops_per_second = kA100.flops_per_second});
    ASSERT_THAT(trace, IsOk());
    int64_t state = 0;
    for (const int8_t slots : trace->block_slots) state += slots;
    // One micro-batch of the store: its gradients are ready when all have contributed.
    if (order == MicroBatchOrder::kLayerMajor) {
      for (Moment& moment : trace->moments) moment.micro_batch = 0;
    }
    const auto replayed = ReplayTrace({.trace = &*trace,
                                       .policy = "planned",
                                       .device_slots = state / 10,
                                       .host_slots = state + 64,
                                       .copy_per_slot = kA100.copy,
                                       .update_per_slot = kA100.update,
                                       .noise = 0.0,
                                       .wait_for_norm = false,
                                       .steps = 6});
    ASSERT_THAT(replayed, IsOk());
    ASSERT_TRUE(replayed->report.planned);
    const auto predicted = static_cast<double>(replayed->report.predicted);
    const auto measured = static_cast<double>(replayed->steps.back().elapsed);
    std::cout << "predicted " << predicted / 1e9 << " s, measured " << measured / 1e9 << " s\n";
    EXPECT_NEAR(measured / predicted, 1.0, 0.02);
    predicted_gain = predicted / predicted_gain;
    measured_gain = measured / measured_gain;
  }
  // Now layer by layer over one by one.
  EXPECT_NEAR(measured_gain / predicted_gain, 1.0, 0.02);
  EXPECT_LT(measured_gain, 0.8);
}

INSTANTIATE_TEST_SUITE_P(Cases, PlannedStepTest,
                         ::testing::Values(Case{"consumer_2k", k4090, 2048, 0.10, false},
                                           Case{"consumer_2k_norm", k4090, 2048, 0.10, true},
                                           Case{"server_2k", kA100, 2048, 0.05, false},
                                           Case{"server_8k", kA100, 8192, 0.10, false},
                                           Case{"server_2k_norm", kA100, 2048, 0.10, true},
                                           Case{"fast_2k", kH100, 2048, 0.05, false},
                                           Case{"fast_8k", kH100, 8192, 0.25, false}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gantry
