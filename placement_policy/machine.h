// What a plan may use: slots per memory tier and the speed of each lane. Plain data, measured or
// configured by the caller.
#ifndef GANTRY_PLACEMENT_POLICY_MACHINE_H_
#define GANTRY_PLACEMENT_POLICY_MACHINE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/tier.h"

namespace gantry {

struct Lane {
  int64_t bytes_per_second = 0;  // 0 = unknown
  int64_t latency_nanoseconds = 0;
};

struct Machine {
  Bytes slot_bytes = Bytes(0);
  int64_t device_slots = 0;
  int64_t host_slots = 0;  // 0 when device and host are one memory (unified)
  bool has_file_tier = false;
  bool unified = false;
  Lane host_to_device = {};
  Lane device_to_host = {};
  Lane file_read = {};
  Lane file_write = {};

  // Errors: kInvalidArgument naming the field.
  absl::Status Validate() const;
};

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_MACHINE_H_
