// Lanes and causes of stalls in words, for people.
#ifndef GANTRY_PLACEMENT_POLICY_REPORT_LANE_TEXT_H_
#define GANTRY_PLACEMENT_POLICY_REPORT_LANE_TEXT_H_

#include <string_view>

#include "placement_policy/simulator.h"

namespace gantry {

std::string_view Text(SimulatedLane lane);    // "to the device", ...
std::string_view Text(SimulatedStall stall);  // "for blocks on their way", ...

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_REPORT_LANE_TEXT_H_
