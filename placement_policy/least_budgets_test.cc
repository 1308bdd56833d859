#include "placement_policy/least_budgets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/hardware.h"
#include "placement_policy/machine.h"
#include "placement_policy/machine_catalog.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/planner.h"
#include "placement_policy/synthetic_trace.h"
#include "placement_policy/tier_bytes.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

Trace TraceOf(std::string_view model, int64_t lora_rank) {
  return SyntheticTrace(BuiltInModel(model).value(), {.sequence_length = 1024,
                                                      .recomputation = Recomputation::kFull,
                                                      .lora_rank = lora_rank})
      .value();
}

Machine MachineOf(const Trace& trace, std::string_view name, const LeastBudgets& budgets) {
  Hardware hardware = CatalogMachine(name).value();
  hardware.device_memory = budgets.device;
  hardware.host_memory =
      hardware.file_bytes > Bytes(0) ? budgets.host_with_files : budgets.host_without_files;
  return MachineFor(hardware, {.slot_bytes = trace.slot_bytes}).value();
}

Machine RatesOf(const Trace& trace, std::string_view name) {
  return MachineFor(CatalogMachine(name).value(), {.slot_bytes = trace.slot_bytes}).value();
}

// The least budgets run, and one slot less on any tier does not.
TEST(LeastBudgetsTest, AreEnoughAndNotMore) {
  for (const std::string_view name : {"rtx4090+gen4", "rtx4090"}) {
    for (const int64_t lora_rank : {0, 8}) {
      SCOPED_TRACE(testing::Message() << name << " lora " << lora_rank);
      const Trace trace = TraceOf("gpt2", lora_rank);
      const auto least = FindLeastBudgets(trace, RatesOf(trace, name), {});
      ASSERT_THAT(least, IsOk());
      const Machine machine = MachineOf(trace, name, *least);
      EXPECT_THAT(EvaluateShape(trace, machine, {}, {.host_buffers = 2}), IsOk());
      Machine less = machine;
      --less.device_slots;
      EXPECT_EQ(EvaluateShape(trace, less, {}, {.host_buffers = 2}).status().code(),
                absl::StatusCode::kResourceExhausted);
      less = machine;
      --less.host_slots;
      EXPECT_EQ(EvaluateShape(trace, less, {}, {.host_buffers = 2}).status().code(),
                absl::StatusCode::kResourceExhausted);
    }
  }
}

// Of an f32 AdamW: 2 bytes of parameters and 12 of states a parameter, padded to chunks.
TEST(LeastBudgetsTest, HostBudgetsFollowFromTheParameters) {
  const Trace trace = TraceOf("llama2-7b", 0);
  const auto least = FindLeastBudgets(trace, RatesOf(trace, "rtx4090+gen4"), {});
  ASSERT_THAT(least, IsOk());
  constexpr double kParameters = 6'738'415'616;
  const auto bytes = [](Bytes value) { return static_cast<double>(value.count()); };
  EXPECT_NEAR(bytes(least->files) / kParameters, 14.0, 0.05);
  EXPECT_NEAR(bytes(least->host_without_files) / kParameters, 14.0, 0.1);
  EXPECT_LT(bytes(least->host_with_files) / kParameters, 0.2);
}

TEST(TierBytesTest, AddUpToTheBudgetAndToTheModel) {
  const Trace trace = TraceOf("llama2-7b", 0);
  const Hardware hardware = CatalogMachine("rtx4090+gen4+host=40GiB").value();
  const Machine machine = MachineFor(hardware, {.slot_bytes = trace.slot_bytes}).value();
  const auto decision = PlanMovement(trace, machine, {.placements_max = 10});
  ASSERT_THAT(decision, IsOk());
  const TierBytes tiers = TierBytesOf(trace, machine, *decision);
  EXPECT_EQ(tiers.device.total(), machine.slot_bytes * machine.device_slots);
  EXPECT_GT(tiers.device.parameters, Bytes(0));
  EXPECT_GT(tiers.device.activations, Bytes(0));
  EXPECT_LE(tiers.host.total(), hardware.host_memory);
  // Parameters that stay on the device need nothing there.
  EXPECT_EQ(tiers.host.parameters,
            trace.slot_bytes * (std::ssize(trace.chunks) - decision->shape.parameters_resident));
  // States are on the device, on the host, or in files.
  EXPECT_GE((tiers.device.states + tiers.host.states + tiers.files.states).count(),
            12 * 6'738'415'616);
  EXPECT_GT(tiers.files.states, Bytes(0));
}

TEST(TierBytesTest, AUnifiedMachineHasNoHost) {
  const Trace trace = TraceOf("gpt2", 0);
  Hardware hardware = CatalogMachine("rtx4090+gen4").value();
  hardware.unified = true;
  hardware.host_memory = Bytes(0);
  hardware.rates.host_to_device = {};
  hardware.rates.device_to_host = {};
  const auto machine_with = [&](Bytes memory) {
    return MachineFor(hardware, {.slot_bytes = trace.slot_bytes, .device_memory = memory}).value();
  };
  const auto least = FindLeastBudgets(trace, machine_with(1_GiB), {});
  ASSERT_THAT(least, IsOk());
  EXPECT_EQ(least->host_with_files, Bytes(0));
  for (const Bytes memory : {least->device, 20_GiB}) {
    const Machine machine = machine_with(memory);
    const auto decision = PlanMovement(trace, machine, {.placements_max = 4});
    ASSERT_THAT(decision, IsOk());
    const TierBytes tiers = TierBytesOf(trace, machine, *decision);
    EXPECT_EQ(tiers.host.total(), Bytes(0));
    if (memory == 20_GiB) {
      EXPECT_EQ(tiers.files.total(), Bytes(0));
    } else {
      EXPECT_GT(tiers.files.total(), Bytes(0));
    }
  }
}

}  // namespace
}  // namespace gantry
