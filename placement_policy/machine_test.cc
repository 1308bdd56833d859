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
  machine.file_read = {.bytes_per_second = 3'000'000'000, .latency_nanoseconds = 80'000};
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
    Lane Machine::* lane;
    const char* bandwidth_message;
    const char* latency_message;
  };
  for (const Case& c : {Case{&Machine::host_to_device, "host_to_device.bytes_per_second is -1",
                             "host_to_device.latency_nanoseconds is -2"},
                        Case{&Machine::device_to_host, "device_to_host.bytes_per_second is -1",
                             "device_to_host.latency_nanoseconds is -2"},
                        Case{&Machine::file_read, "file_read.bytes_per_second is -1",
                             "file_read.latency_nanoseconds is -2"},
                        Case{&Machine::file_write, "file_write.bytes_per_second is -1",
                             "file_write.latency_nanoseconds is -2"}}) {
    Machine machine = Valid();
    (machine.*c.lane).bytes_per_second = -1;
    ExpectInvalid(machine, c.bandwidth_message);
    machine = Valid();
    (machine.*c.lane).latency_nanoseconds = -2;
    ExpectInvalid(machine, c.latency_message);
  }
}

}  // namespace
}  // namespace gantry
