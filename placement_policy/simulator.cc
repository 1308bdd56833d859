#include "placement_policy/simulator.h"

#include "placement_policy/simulation.h"

namespace gantry {

std::string_view Name(SimulatedLane lane) {
  switch (lane) {
    case SimulatedLane::kHostToDevice:
      return "host_to_device";
    case SimulatedLane::kDeviceToHost:
      return "device_to_host";
    case SimulatedLane::kHostUpdate:
      return "host_update";
    case SimulatedLane::kFileRead:
      return "file_read";
    case SimulatedLane::kFileWrite:
      return "file_write";
  }
  return "?";
}

std::string_view Name(SimulatedStall stall) {
  switch (stall) {
    case SimulatedStall::kFetch:
      return "fetch";
    case SimulatedStall::kUpdate:
      return "update";
    case SimulatedStall::kNorm:
      return "norm";
    case SimulatedStall::kRoom:
      return "room";
  }
  return "?";
}

absl::StatusOr<SimulatedStep> Simulate(const MovementProblem& problem, const MovementPlan& plan,
                                       const SimulationOptions& options) {
  return Simulation(problem, plan, options).Run();
}

}  // namespace gantry
