#include "placement_policy/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

Hardware Valid() {
  return {.name = "one",
          .device = "accelerator",
          .device_memory = 24_GiB,
          .host_memory = 64_GiB,
          .file_bytes = 1000_GiB,
          .rates = {.host_to_device = {.bytes_per_second = 25},
                    .device_to_host = {.bytes_per_second = 25},
                    .file_read = {.bytes_per_second = 7},
                    .file_write = {.bytes_per_second = 5},
                    .host_update_bytes_per_second = 60,
                    .device_memory_bytes_per_second = 1000,
                    .flops_per_second = 82'000}};
}

void ExpectInvalid(const Hardware& hardware, const char* message) {
  EXPECT_THAT(hardware.Validate(), StatusIs(absl::StatusCode::kInvalidArgument, message));
  EXPECT_THAT(MachineFor(hardware, {.slot_bytes = 2_MiB}),
              StatusIs(absl::StatusCode::kInvalidArgument, message));
}

TEST(HardwareTest, LanesThatExistMustBeKnown) {
  EXPECT_THAT(Valid().Validate(), IsOk());
  struct Case {
    Lane MachineRates::* lane;
    const char* message;
  };
  for (const Case& c : {Case{&MachineRates::host_to_device, "host_to_device is 0"},
                        Case{&MachineRates::device_to_host, "device_to_host is 0"},
                        Case{&MachineRates::file_read, "file_read is 0"},
                        Case{&MachineRates::file_write, "file_write is 0"}}) {
    Hardware hardware = Valid();
    (hardware.rates.*c.lane).bytes_per_second = 0;
    ExpectInvalid(hardware, c.message);
  }
}

TEST(HardwareTest, LanesThatDoNotExistHaveNoRates) {
  Hardware hardware = Valid();
  hardware.file_bytes = 0_B;
  ExpectInvalid(hardware, "file_bytes is 0, but there are file lanes");
  hardware.rates.file_read = {};
  ExpectInvalid(hardware, "file_bytes is 0, but there are file lanes");
  hardware.rates.file_write = {};
  EXPECT_THAT(hardware.Validate(), IsOk());
  hardware.rates.file_duplex = Duplex::kIndependent;
  ExpectInvalid(hardware, "file_bytes is 0, but there are file lanes");
  hardware.rates.file_duplex = Duplex::kExclusive;
  hardware.unified = true;
  hardware.host_memory = 0_B;
  ExpectInvalid(hardware, "a unified machine has no copy lanes");
  hardware.rates.host_to_device = hardware.rates.device_to_host = {};
  EXPECT_THAT(hardware.Validate(), IsOk());
  hardware.rates.copy_duplex = Duplex::kExclusive;
  ExpectInvalid(hardware, "a unified machine has no copy lanes");
}

TEST(HardwareTest, NamesTheBadField) {
  struct Case {
    void (*corrupt)(Hardware&);
    const char* message;
  };
  const Case cases[] = {
      {[](Hardware& h) { h.device_memory = 0_B; }, "device_memory is 0"},
      {[](Hardware& h) { h.device_memory = Bytes(-1); }, "device_memory is -1"},
      {[](Hardware& h) { h.host_memory = Bytes(-1); }, "host_memory is -1"},
      {[](Hardware& h) { h.host_memory = Bytes((int64_t{1} << 53) + 1); }, "host_memory is 9"},
      {[](Hardware& h) { h.file_bytes = Bytes(-1); }, "file_bytes is -1"},
      {[](Hardware& h) { h.unified = true; }, "unified"},
      {[](Hardware& h) { h.rates.flops_per_second = 0; }, "flops_per_second is 0"},
      {[](Hardware& h) { h.rates.flops_per_second = -1; }, "flops_per_second is -1"},
      {[](Hardware& h) { h.rates.host_update_bytes_per_second = 0; }, "host_update_bytes"},
      {[](Hardware& h) { h.rates.device_memory_bytes_per_second = 0; }, "device_memory_bytes"},
      {[](Hardware& h) { h.rates.compute_scale = 0.0; }, "compute_scale is 0"}};
  for (const Case& c : cases) {
    Hardware hardware = Valid();
    c.corrupt(hardware);
    ExpectInvalid(hardware, c.message);
  }
}

TEST(HardwareTest, MachinesHaveTheBudgetsSlots) {
  const auto all = MachineFor(Valid(), {.slot_bytes = 3_MiB});
  ASSERT_THAT(all, IsOk());
  EXPECT_EQ(all->device_slots, 8192);
  EXPECT_EQ(all->host_slots, 21845);  // rounded down
  EXPECT_TRUE(all->has_file_tier);
  EXPECT_FALSE(all->unified);
  EXPECT_EQ(all->rates.flops_per_second, 82'000);
  const auto some =
      MachineFor(Valid(), {.slot_bytes = 2_MiB, .device_memory = 24_GiB, .host_memory = Bytes(0)});
  ASSERT_THAT(some, IsOk());
  EXPECT_EQ(some->device_slots, 12288);
  EXPECT_EQ(some->host_slots, 0);
}

TEST(HardwareTest, BudgetsAreWithinTheHardware) {
  EXPECT_THAT(MachineFor(Valid(), {.slot_bytes = 2_MiB, .device_memory = 24_GiB + 1_B}),
              StatusIs(absl::StatusCode::kInvalidArgument, "device_memory of 24.0 GiB is more"));
  EXPECT_THAT(MachineFor(Valid(), {.slot_bytes = 2_MiB, .host_memory = 65_GiB}),
              StatusIs(absl::StatusCode::kInvalidArgument, "host_memory of 65.0 GiB is more"));
  EXPECT_THAT(MachineFor(Valid(), {.slot_bytes = 2_MiB, .device_memory = 1_MiB}),
              StatusIs(absl::StatusCode::kInvalidArgument, "device_slots is 0"));
  EXPECT_THAT(MachineFor(Valid(), {.slot_bytes = 0_B}),
              StatusIs(absl::StatusCode::kInvalidArgument, "slot_bytes is 0"));
}

TEST(HardwareTest, UnifiedMachinesHaveNoHostSlots) {
  Hardware hardware = Valid();
  hardware.unified = true;
  hardware.host_memory = 0_B;
  hardware.rates.host_to_device = hardware.rates.device_to_host = {};
  const auto machine = MachineFor(hardware, {.slot_bytes = 2_MiB, .host_memory = 5_GiB});
  ASSERT_THAT(machine, IsOk());
  EXPECT_TRUE(machine->unified);
  EXPECT_EQ(machine->host_slots, 0);
}

}  // namespace
}  // namespace gantry
