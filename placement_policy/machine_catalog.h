// Machines by name, put together from built-in parts: "rtx4090", "rtx4090+pcie4+2xgen4",
// "a100-80+host=256GiB". Each figure comes with its source: a data sheet, or an assumption with its
// reason. Pure functions.
//
//   NAME     = DEVICE ["+" PART ...]
//   PART     = a link; [1 to 8 "x"] a drive; "host=" SIZE; "vram=" SIZE; "dram=" SIZE a second
//
// A device has a link and a host of its own, which the parts replace; without a drive there is no
// file tier. The parts "study-..." are those that the simulated study of planners took.
#ifndef GANTRY_PLACEMENT_POLICY_MACHINE_CATALOG_H_
#define GANTRY_PLACEMENT_POLICY_MACHINE_CATALOG_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "placement_policy/hardware.h"

namespace gantry {

// Every figure of the result has a source. Errors: kInvalidArgument naming the part that is not
// known (with the nearest that is, and all), given twice or out of range.
absl::StatusOr<Hardware> CatalogMachine(std::string_view name);

struct CatalogPart {
  enum class Kind { kDevice, kLink, kDrive };
  Kind kind;
  std::string name;
  std::string text;  // what it is and how fast, in one line
};
// All parts, in the order in which they should be listed.
std::vector<CatalogPart> CatalogParts();

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_MACHINE_CATALOG_H_
