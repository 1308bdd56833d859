#include "placement_policy/hardware.h"

#include <cstdint>
#include <string_view>

#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

// As many as a machine file can say.
constexpr Bytes kMemoryMax = Bytes(int64_t{1} << 53);

absl::Status CheckBytes(std::string_view name, Bytes bytes, Bytes least) {
  if (bytes >= least && bytes <= kMemoryMax) return absl::OkStatus();
  return InvalidArgument("hardware: ", name, " is ", bytes.count(), ", outside [", least.count(),
                         ", ", kMemoryMax.count(), "]");
}

absl::Status ExpectRate(std::string_view name, int64_t rate) {
  if (rate > 0) return absl::OkStatus();
  return InvalidArgument("hardware: ", name, " is ", rate, "; it must be known");
}

absl::Status CheckLanes(const Hardware& hardware) {
  const MachineRates& rates = hardware.rates;
  const MachineRates none;
  if (hardware.unified) {
    if (rates.host_to_device != none.host_to_device ||
        rates.device_to_host != none.device_to_host || rates.copy_duplex != none.copy_duplex) {
      return InvalidArgument("hardware: a unified machine has no copy lanes");
    }
  } else {
    GANTRY_RETURN_IF_ERROR(ExpectRate("host_to_device", rates.host_to_device.bytes_per_second));
    GANTRY_RETURN_IF_ERROR(ExpectRate("device_to_host", rates.device_to_host.bytes_per_second));
  }
  if (hardware.file_bytes > Bytes(0)) {
    GANTRY_RETURN_IF_ERROR(ExpectRate("file_read", rates.file_read.bytes_per_second));
    return ExpectRate("file_write", rates.file_write.bytes_per_second);
  }
  if (rates.file_read != none.file_read || rates.file_write != none.file_write ||
      rates.file_duplex != none.file_duplex) {
    return InvalidArgument("hardware: file_bytes is 0, but there are file lanes");
  }
  return absl::OkStatus();
}

absl::Status CheckBudget(std::string_view name, Bytes budget, Bytes there) {
  if (budget <= there) return absl::OkStatus();
  return InvalidArgument("the budget ", name, " of ", budget, " is more than the hardware has, ",
                         there);
}

}  // namespace

absl::Status Hardware::Validate() const {
  GANTRY_RETURN_IF_ERROR(CheckBytes("device_memory", device_memory, Bytes(1)));
  GANTRY_RETURN_IF_ERROR(CheckBytes("host_memory", host_memory, Bytes(0)));
  GANTRY_RETURN_IF_ERROR(CheckBytes("file_bytes", file_bytes, Bytes(0)));
  if (unified && host_memory != Bytes(0)) {
    return InvalidArgument("hardware: host_memory is ", host_memory.count(),
                           ", but a unified machine has device_memory only");
  }
  GANTRY_RETURN_IF_ERROR(rates.Validate());
  GANTRY_RETURN_IF_ERROR(CheckLanes(*this));
  GANTRY_RETURN_IF_ERROR(
      ExpectRate("host_update_bytes_per_second", rates.host_update_bytes_per_second));
  GANTRY_RETURN_IF_ERROR(
      ExpectRate("device_memory_bytes_per_second", rates.device_memory_bytes_per_second));
  return ExpectRate("flops_per_second", rates.flops_per_second);
}

absl::StatusOr<Machine> MachineFor(const Hardware& hardware, const MachineOptions& options) {
  GANTRY_RETURN_IF_ERROR(hardware.Validate());
  const Bytes device = options.device_memory.value_or(hardware.device_memory);
  GANTRY_RETURN_IF_ERROR(CheckBudget("device_memory", device, hardware.device_memory));
  Bytes host = Bytes(0);
  if (!hardware.unified) {
    host = options.host_memory.value_or(hardware.host_memory);
    GANTRY_RETURN_IF_ERROR(CheckBudget("host_memory", host, hardware.host_memory));
  }
  if (options.slot_bytes <= Bytes(0)) {
    return InvalidArgument("slot_bytes is ", options.slot_bytes.count());
  }
  Machine machine{.slot_bytes = options.slot_bytes,
                  .device_slots = device.count() / options.slot_bytes.count(),
                  .host_slots = host.count() / options.slot_bytes.count(),
                  .has_file_tier = hardware.file_bytes > Bytes(0),
                  .unified = hardware.unified,
                  .rates = hardware.rates};
  GANTRY_RETURN_IF_ERROR(machine.Validate());
  return machine;
}

}  // namespace gantry
