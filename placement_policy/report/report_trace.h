// A report's timelines as a trace for the Perfetto viewer (https://ui.perfetto.dev; Chrome's JSON
// format): a process for the simulated step and one for the measured, with one track each for
// computing and waiting, one or more for each lane (moves that overlap are on tracks of their own),
// and a counter for each tier, by kind of bytes.
//
// A pure function: the same report gives the same bytes.
#ifndef GANTRY_PLACEMENT_POLICY_REPORT_REPORT_TRACE_H_
#define GANTRY_PLACEMENT_POLICY_REPORT_REPORT_TRACE_H_

#include <string>

#include "placement_policy/report/step_report.h"

namespace gantry {

// Nothing is merged, however large the step is. What began before the step begins with it.
std::string ReportTrace(const StepReport& report);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_REPORT_REPORT_TRACE_H_
