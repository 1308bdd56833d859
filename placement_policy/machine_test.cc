#include "placement_policy/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

Machine Valid() { return {.slot_bytes = 2_MiB, .device_slots = 24, .host_slots = 100}; }

void ExpectInvalid(const Machine& machine, const char* message) {
  EXPECT_THAT(machine.Validate(), StatusIs(absl::StatusCode::kInvalidArgument, message));
}

TEST(MachineTest, ValidMachines) {
  EXPECT_THAT(Valid().Validate(), IsOk());
  Machine machine = Valid();
  machine.host_slots = 0;  // a device that has no host tier under it
  EXPECT_THAT(machine.Validate(), IsOk());
  machine.unified = true;
  EXPECT_THAT(machine.Validate(), IsOk());
  machine = Valid();
  machine.has_file_tier = true;
  machine.rates.file_read = {.bytes_per_second = 3'000'000'000, .latency_nanoseconds = 80'000};
  EXPECT_THAT(machine.Validate(), IsOk());
}

TEST(MachineTest, NamesTheBadField) {
  Machine machine = Valid();
  machine.slot_bytes = 0_B;
  ExpectInvalid(machine, "slot_bytes is 0");
  machine.slot_bytes = Bytes(-1);
  ExpectInvalid(machine, "slot_bytes is -1");
  machine = Valid();
  machine.device_slots = 0;
  ExpectInvalid(machine, "device_slots is 0");
  machine.device_slots = -4;
  ExpectInvalid(machine, "device_slots is -4");
  machine = Valid();
  machine.host_slots = -1;
  ExpectInvalid(machine, "host_slots is -1");
  machine.host_slots = std::numeric_limits<int64_t>::max();
  ExpectInvalid(machine, "host_slots is 9223372036854775807, too many bytes");
  machine = Valid();
  machine.device_slots = std::numeric_limits<int64_t>::max() / 2;
  ExpectInvalid(machine, "device_slots");
  machine = Valid();
  machine.unified = true;
  ExpectInvalid(machine, "unified");
}

TEST(MachineTest, NamesTheBadLane) {
  struct Case {
    Lane MachineRates::* lane;
    const char* bandwidth_message;
    const char* latency_message;
  };
  for (const Case& c : {Case{&MachineRates::host_to_device, "host_to_device.bytes_per_second is -1",
                             "host_to_device.latency_nanoseconds is -2"},
                        Case{&MachineRates::device_to_host, "device_to_host.bytes_per_second is -1",
                             "device_to_host.latency_nanoseconds is -2"},
                        Case{&MachineRates::file_read, "file_read.bytes_per_second is -1",
                             "file_read.latency_nanoseconds is -2"},
                        Case{&MachineRates::file_write, "file_write.bytes_per_second is -1",
                             "file_write.latency_nanoseconds is -2"}}) {
    Machine machine = Valid();
    (machine.rates.*c.lane).bytes_per_second = -1;
    ExpectInvalid(machine, c.bandwidth_message);
    machine = Valid();
    (machine.rates.*c.lane).latency_nanoseconds = -2;
    ExpectInvalid(machine, c.latency_message);
  }
}

TEST(MachineTest, RatesHaveLimits) {
  struct Case {
    const char* name;
    int64_t MachineRates::* rate;
    int64_t most;
  };
  constexpr int64_t kBytesMax = 1'000'000'000'000'000;
  for (const Case& c :
       {Case{"host_update_bytes_per_second is ", &MachineRates::host_update_bytes_per_second,
             kBytesMax},
        Case{"device_memory_bytes_per_second is ", &MachineRates::device_memory_bytes_per_second,
             kBytesMax},
        Case{"flops_per_second is ", &MachineRates::flops_per_second, int64_t{1} << 53}}) {
    Machine machine = Valid();
    for (const int64_t good : {int64_t{0}, int64_t{1}, c.most}) {
      machine.rates.*c.rate = good;
      EXPECT_THAT(machine.Validate(), IsOk()) << c.name << good;
    }
    for (const int64_t bad : {int64_t{-1}, c.most + 1}) {
      machine.rates.*c.rate = bad;
      ExpectInvalid(machine, c.name);
    }
  }
  Machine machine = Valid();
  machine.rates.file_read = {.bytes_per_second = kBytesMax, .latency_nanoseconds = 60'000'000'000};
  EXPECT_THAT(machine.Validate(), IsOk());
  ++machine.rates.file_read.latency_nanoseconds;
  ExpectInvalid(machine, "file_read.latency_nanoseconds is 60000000001");
  machine.rates.file_read = {.bytes_per_second = kBytesMax + 1};
  ExpectInvalid(machine, "file_read.bytes_per_second is 1000000000000001");
}

TEST(MachineTest, MixedRatesBelongToMixedLanes) {
  Machine machine = Valid();
  machine.rates.copy_duplex = Duplex::kMixed;
  ExpectInvalid(machine, "copy_mixed_bytes_per_second is 0, but copy_duplex is mixed");
  machine.rates.copy_mixed_bytes_per_second = 1;
  EXPECT_THAT(machine.Validate(), IsOk());
  machine.rates.file_mixed_bytes_per_second = 1;
  ExpectInvalid(machine, "file_mixed_bytes_per_second is 1, but file_duplex is exclusive");
  machine.rates.file_duplex = static_cast<Duplex>(3);
  ExpectInvalid(machine, "file_duplex is 3");
}

TEST(MachineTest, ComputeScale) {
  Machine machine = Valid();
  for (const double bad : {0.0, -1.0, 1000.1, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    machine.rates.compute_scale = bad;
    ExpectInvalid(machine, "compute_scale is ");
  }
  EXPECT_EQ(ComputeTime(1001, {.compute_scale = 0.5}), 501);
  EXPECT_EQ(ComputeTime(7, {}), 7);
  EXPECT_EQ(ComputeTime(0, {.compute_scale = 1000.0}), 0);
  EXPECT_EQ(ComputeTime(int64_t{1} << 53, {.compute_scale = 1000.0}), 1000 * (int64_t{1} << 53));
}

TEST(MachineDeathTest, NegativeTimesAbort) { EXPECT_DEATH(ComputeTime(-1, {}), "-1 ns"); }

}  // namespace
}  // namespace gantry
