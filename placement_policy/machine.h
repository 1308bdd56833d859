// What a plan may use: slots per memory tier, and how fast things are. Plain data, derived from a
// Hardware description (hardware.h) or configured by the caller.
#ifndef GANTRY_PLACEMENT_POLICY_MACHINE_H_
#define GANTRY_PLACEMENT_POLICY_MACHINE_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/clock.h"

namespace gantry {

struct Lane {
  int64_t bytes_per_second = 0;  // 0 = unknown
  int64_t latency_nanoseconds = 0;

  bool operator==(const Lane&) const = default;
};

// What two lanes of opposite directions do to each other.
enum class Duplex : uint8_t {
  kIndependent,  // each at its own rate, whatever the other does
  kExclusive,    // one resource: a transfer in one direction waits for one in the other
  kMixed,        // both at once, but then each at half of the measured mixed rate at most
};
std::string_view Name(Duplex duplex);  // "independent", "exclusive", "mixed"

// How fast a machine is, whatever is stored where. 0 = unknown.
struct MachineRates {
  Lane host_to_device = {};
  Lane device_to_host = {};
  Duplex copy_duplex = Duplex::kIndependent;
  int64_t copy_mixed_bytes_per_second = 0;  // both directions together; kMixed only
  Lane file_read = {};
  Lane file_write = {};
  Duplex file_duplex = Duplex::kExclusive;
  int64_t file_mixed_bytes_per_second = 0;  // reads and writes together; kMixed only

  // Memory traffic that the host's optimizer updates reach; kUpdateBytesPerParameter each.
  int64_t host_update_bytes_per_second = 0;
  // Memory bandwidth of the device: what bounds updates there.
  int64_t device_memory_bytes_per_second = 0;
  // What a training step reaches, not the peak.
  int64_t flops_per_second = 0;
  // A moment takes this times what its trace says: for traces measured on another machine.
  double compute_scale = 1.0;

  // Errors: kInvalidArgument naming the field: negative, beyond any machine, or a mixed rate where
  // none belongs.
  absl::Status Validate() const;
  bool operator==(const MachineRates&) const = default;
};

// DRAM traffic of one parameter's update with AdamW: gradient 2 read; master, momentum and variance
// 4 read and 4 written each; parameter 2 written.
inline constexpr int64_t kUpdateBytesPerParameter = 28;

struct Machine {
  Bytes slot_bytes = Bytes(0);
  int64_t device_slots = 0;
  int64_t host_slots = 0;  // 0 when device and host are one memory (unified)
  bool has_file_tier = false;
  bool unified = false;
  MachineRates rates = {};

  // Errors: kInvalidArgument naming the field.
  absl::Status Validate() const;
};

// What a moment of a trace takes on this machine. REQUIRES: 0 <= traced <= 2^53.
Nanoseconds ComputeTime(Nanoseconds traced, const MachineRates& rates);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_MACHINE_H_
