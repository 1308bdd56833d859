#include "placement_policy/report/lane_text.h"

#include <string_view>

#include "placement_policy/simulator.h"

namespace gantry {

std::string_view Text(SimulatedLane lane) {
  switch (lane) {
    case SimulatedLane::kHostToDevice:
      return "to the device";
    case SimulatedLane::kDeviceToHost:
      return "from the device";
    case SimulatedLane::kHostUpdate:
      return "host updates";
    case SimulatedLane::kFileRead:
      return "file reads";
    case SimulatedLane::kFileWrite:
      return "file writes";
  }
  return "?";
}

std::string_view Text(SimulatedStall stall) {
  switch (stall) {
    case SimulatedStall::kFetch:
      return "for blocks on their way";
    case SimulatedStall::kUpdate:
      return "for updates";
    case SimulatedStall::kNorm:
      return "for the gradient norm";
    case SimulatedStall::kRoom:
      return "for room";
  }
  return "?";
}

}  // namespace gantry
