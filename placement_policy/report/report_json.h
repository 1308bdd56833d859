// The data of a report's charts, as the page's script wants them.
#ifndef GANTRY_PLACEMENT_POLICY_REPORT_REPORT_JSON_H_
#define GANTRY_PLACEMENT_POLICY_REPORT_REPORT_JSON_H_

#include <string>

#include "placement_policy/report/step_report.h"

namespace gantry {

// Lists of numbers are flat, with so many for each entry; times are nanoseconds, and a begin counts
// from the one before. Not yet fit for a script element: see JsonForScript.
//
//   operators  begin, duration, name, phase, micro-batch, layer, count
//   waits      begin, duration, cause
//   moves      begin, duration, lane, row, bytes, subject, reason, operator, step, count
//   points     time, slots by kind
std::string ReportJson(const StepReport& report);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_REPORT_REPORT_JSON_H_
