#include "placement_policy/machine.h"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

// Beyond anything that will be built, and far from overflow.
constexpr int64_t kBytesPerSecondMax = 1'000'000'000'000'000;  // 1 PB/s
constexpr int64_t kLatencyMax = 60'000'000'000;                // a minute
constexpr int64_t kFlopsPerSecondMax = int64_t{1} << 53;       // 9 PFLOP/s
constexpr double kComputeScaleMax = 1000.0;                    // 2^53 times this is an int64

absl::Status CheckRange(std::string_view name, int64_t value, int64_t most) {
  if (value >= 0 && value <= most) return absl::OkStatus();
  return InvalidArgument("machine: ", name, " is ", value, ", outside [0, ", most, "]");
}

absl::Status CheckLane(std::string_view name, const Lane& lane) {
  GANTRY_RETURN_IF_ERROR(
      CheckRange(StrCat(name, ".bytes_per_second"), lane.bytes_per_second, kBytesPerSecondMax));
  return CheckRange(StrCat(name, ".latency_nanoseconds"), lane.latency_nanoseconds, kLatencyMax);
}

// `name` is the pair's: "copy" or "file".
absl::Status CheckDuplex(std::string_view name, Duplex duplex, int64_t mixed) {
  if (duplex > Duplex::kMixed) {
    return InvalidArgument("machine: ", name, "_duplex is ", static_cast<int>(duplex));
  }
  const std::string field = StrCat(name, "_mixed_bytes_per_second");
  GANTRY_RETURN_IF_ERROR(CheckRange(field, mixed, kBytesPerSecondMax));
  if ((duplex == Duplex::kMixed) == (mixed > 0)) return absl::OkStatus();
  return InvalidArgument("machine: ", field, " is ", mixed, ", but ", name, "_duplex is ",
                         Name(duplex));
}

absl::Status CheckSlots(std::string_view name, int64_t slots, Bytes slot_bytes) {
  if (slots < 0) return InvalidArgument("machine: ", name, " is ", slots);
  // Half of them, so that two tiers can be added.
  if (slots > std::numeric_limits<int64_t>::max() / 2 / slot_bytes.count()) {
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
  return rates.Validate();
}

absl::Status MachineRates::Validate() const {
  GANTRY_RETURN_IF_ERROR(CheckLane("host_to_device", host_to_device));
  GANTRY_RETURN_IF_ERROR(CheckLane("device_to_host", device_to_host));
  GANTRY_RETURN_IF_ERROR(CheckDuplex("copy", copy_duplex, copy_mixed_bytes_per_second));
  GANTRY_RETURN_IF_ERROR(CheckLane("file_read", file_read));
  GANTRY_RETURN_IF_ERROR(CheckLane("file_write", file_write));
  GANTRY_RETURN_IF_ERROR(CheckDuplex("file", file_duplex, file_mixed_bytes_per_second));
  GANTRY_RETURN_IF_ERROR(
      CheckRange("host_update_bytes_per_second", host_update_bytes_per_second, kBytesPerSecondMax));
  GANTRY_RETURN_IF_ERROR(CheckRange("device_memory_bytes_per_second",
                                    device_memory_bytes_per_second, kBytesPerSecondMax));
  GANTRY_RETURN_IF_ERROR(CheckRange("flops_per_second", flops_per_second, kFlopsPerSecondMax));
  if (compute_scale > 0.0 && compute_scale <= kComputeScaleMax) return absl::OkStatus();
  return InvalidArgument("machine: compute_scale is ", compute_scale, ", outside (0, ",
                         kComputeScaleMax, "]");
}

std::string_view Name(Duplex duplex) {
  switch (duplex) {
    case Duplex::kIndependent:
      return "independent";
    case Duplex::kExclusive:
      return "exclusive";
    case Duplex::kMixed:
      return "mixed";
  }
  return "?";
}

Nanoseconds ComputeTime(Nanoseconds traced, const MachineRates& rates) {
  GANTRY_CHECK(traced >= 0 && traced <= int64_t{1} << 53) << traced << " ns";
  return std::llround(static_cast<double>(traced) * rates.compute_scale);
}

}  // namespace gantry
