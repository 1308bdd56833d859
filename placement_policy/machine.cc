#include "placement_policy/machine.h"

#include <limits>
#include <string_view>

#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

absl::Status CheckLane(std::string_view name, const Lane& lane) {
  if (lane.bytes_per_second < 0) {
    return InvalidArgument("machine: ", name, ".bytes_per_second is ", lane.bytes_per_second);
  }
  if (lane.latency_nanoseconds < 0) {
    return InvalidArgument("machine: ", name, ".latency_nanoseconds is ", lane.latency_nanoseconds);
  }
  return absl::OkStatus();
}

absl::Status CheckSlots(std::string_view name, int64_t slots, Bytes slot_bytes) {
  if (slots < 0) return InvalidArgument("machine: ", name, " is ", slots);
  if (slots > std::numeric_limits<int64_t>::max() / slot_bytes.count()) {
    return InvalidArgument("machine: ", name, " is ", slots, ", too many bytes with slots of ",
                           slot_bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Machine::Validate() const {
  if (slot_bytes <= Bytes(0)) {
    return InvalidArgument("machine: slot_bytes is ", slot_bytes.count());
  }
  if (device_slots == 0) return InvalidArgument("machine: device_slots is 0");
  GANTRY_RETURN_IF_ERROR(CheckSlots("device_slots", device_slots, slot_bytes));
  GANTRY_RETURN_IF_ERROR(CheckSlots("host_slots", host_slots, slot_bytes));
  if (unified && host_slots != 0) {
    return InvalidArgument("machine: host_slots is ", host_slots,
                           ", but a unified machine has device slots only");
  }
  GANTRY_RETURN_IF_ERROR(CheckLane("host_to_device", host_to_device));
  GANTRY_RETURN_IF_ERROR(CheckLane("device_to_host", device_to_host));
  GANTRY_RETURN_IF_ERROR(CheckLane("file_read", file_read));
  return CheckLane("file_write", file_write);
}

}  // namespace gantry
