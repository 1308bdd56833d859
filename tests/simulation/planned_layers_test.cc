// Whether the engine does with layers' activations what its plans promise: steps of a 7 B model
// that save more than the device holds, replayed on the engine in virtual time.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>

#include "base/clock.h"
#include "base/testing/status_matchers.h"
#include "gemini/layer_activations.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/synthetic_trace.h"
#include "tests/simulation/trace_replay.h"

namespace gantry {
namespace {

struct Case {
  const char* name;
  double flops_per_second;
  Nanoseconds copy;  // of one slot of 32 MiB
  int64_t tokens;
  int64_t device_slots;
  bool mixes;  // the best is to compute some layers again and move others
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

double Seconds(Nanoseconds time) { return static_cast<double>(time) / 1e9; }

class PlannedLayersTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto shape = BuiltInModel("llama2-7b");
    ASSERT_THAT(shape, IsOk());
    const auto trace = SyntheticTrace(*shape, {.sequences = GetParam().tokens / 2048,
                                               .sequence_length = 2048,
                                               .flops_per_second = GetParam().flops_per_second});
    ASSERT_THAT(trace, IsOk());
    trace_ = *trace;
    for (const int8_t slots : trace_.block_slots) state_ += slots;
    for (const Moment& moment : trace_.moments) {
      activations_ = std::max(activations_, moment.activation_slots);
    }
  }

  absl::StatusOr<ReplayResult> Replay(LayerSaving saving, const char* policy = "planned") {
    return ReplayTrace({.trace = &trace_,
                        .policy = policy,
                        .device_slots = GetParam().device_slots,
                        .host_slots = state_ + activations_ + 64,
                        .copy_per_slot = GetParam().copy,
                        .update_per_slot = 209'715,
                        .saving = saving,
                        .steps = 6});
  }

  Trace trace_;
  int64_t state_ = 0;
  int64_t activations_ = 0;
};

TEST_P(PlannedLayersTest, TakesAsLongAsPredicted) {
  ASSERT_GT(activations_, GetParam().device_slots);
  EXPECT_EQ(Replay(LayerSaving::kKeep).status().code(), absl::StatusCode::kResourceExhausted);
  const auto planned = Replay(LayerSaving::kPlanned);
  ASSERT_THAT(planned, IsOk());
  ASSERT_TRUE(planned->report.planned) << ::testing::PrintToString(planned->messages);
  const double predicted = Seconds(planned->report.predicted);
  const double measured = Seconds(planned->steps.back().elapsed);
  std::cout << "activations " << activations_ << " of " << GetParam().device_slots
            << " slots; offloaded " << planned->report.shape.offloaded << ", computed again "
            << planned->report.shape.recomputed << "; predicted " << predicted << " s, measured "
            << measured << " s, compute " << Seconds(planned->steps.back().compute)
            << " s, planned in " << Seconds(planned->report.planning) << " s\n";
  EXPECT_NEAR(measured / predicted, 1.0, 0.03);
  EXPECT_GT(planned->report.shape.offloaded, 0);
  EXPECT_EQ(planned->report.shape.recomputed > 0, GetParam().mixes);
  for (const LayerSaving saving : {LayerSaving::kRecompute, LayerSaving::kMove}) {
    const auto forced = Replay(saving);
    ASSERT_THAT(forced, IsOk());
    std::cout << (saving == LayerSaving::kMove ? "all moved " : "all again ")
              << Seconds(forced->steps.back().elapsed) << " s, predicted "
              << Seconds(forced->report.predicted) << " s\n";
    EXPECT_LT(measured, 1.03 * Seconds(forced->steps.back().elapsed));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, PlannedLayersTest,
                         ::testing::Values(Case{"slow_copies", 156e12, 1'342'177, 8192, 500, false},
                                           Case{"small_device", 82e12, 1'342'177, 8192, 300, false},
                                           Case{"fast_device", 445e12, 1'342'177, 8192, 500, true},
                                           Case{"slow_link", 156e12, 2'684'354, 8192, 400, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gantry
