// How fast plans are made: summary rows of the one kind that is measured.
//
//   planner/seconds    real time of the case whose planning took longest, planned again by itself
//   simulator/moves    moves a second of the simulator with that plan
#ifndef GANTRY_BENCHES_POLICIES_PLANNER_SPEED_H_
#define GANTRY_BENCHES_POLICIES_PLANNER_SPEED_H_

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "benches/policies/policy_suite.h"
#include "benches/suite/report.h"

namespace gantry {

// Nothing where no case was planned. Blocks. Errors: those of PlanCase and Simulate.
absl::StatusOr<std::vector<BenchRow>> SpeedRows(const PolicySuite& suite,
                                                std::span<const CaseOutcome> outcomes,
                                                const Clock& clock);

}  // namespace gantry

#endif  // GANTRY_BENCHES_POLICIES_PLANNER_SPEED_H_
