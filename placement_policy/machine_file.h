// The machine file: a description of hardware as versioned JSON, written by hand, by
// `gantry profile machine` or from the catalog. docs/formats/machine.md describes it. Pure
// functions.
#ifndef GANTRY_PLACEMENT_POLICY_MACHINE_FILE_H_
#define GANTRY_PLACEMENT_POLICY_MACHINE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "placement_policy/hardware.h"

namespace gantry {

inline constexpr int64_t kMachineFileVersion = 1;
inline constexpr size_t kMachineFileBytesMax = size_t{1} << 20;

// The figures of the file, as "copies.host_to_device.latency_ns".
std::span<const std::string_view> MachineFileFields();

// The same description always gives the same text. REQUIRES: hardware.Validate() is OK and every
// key of `sources` is one of MachineFileFields.
std::string FormatMachine(const Hardware& hardware);

// Errors: kInvalidArgument naming the field, for whatever is not such a file or no valid hardware.
absl::StatusOr<Hardware> ParseMachine(std::string_view text);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_MACHINE_FILE_H_
