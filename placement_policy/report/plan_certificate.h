// How good a movement plan is: what it decided, and its simulated step beside what no plan can stay
// below.
#ifndef GANTRY_PLACEMENT_POLICY_REPORT_PLAN_CERTIFICATE_H_
#define GANTRY_PLACEMENT_POLICY_REPORT_PLAN_CERTIFICATE_H_

#include <vector>

#include "placement_policy/machine.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/report/step_report.h"
#include "placement_policy/trace.h"

namespace gantry {

// Placement, clipping mode, the step, both bounds, the limiting lane, fetches and bytes beside the
// least, the plan's hash. Takes milliseconds.
// REQUIRES: the decision is of this trace and machine; the trace has chunks.
std::vector<ReportFact> PlanCertificate(const Trace& trace, const Machine& machine,
                                        const MovementDecision& decision);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_REPORT_PLAN_CERTIFICATE_H_
