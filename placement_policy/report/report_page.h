// A report as one HTML page that needs no network and no server: figures as tables, and the
// timeline of a step to look at, zoom into and walk through with the keyboard. Light or dark as the
// reader's system is. Without scripts the tables remain.
//
// A pure function: the same report gives the same bytes.
#ifndef GANTRY_PLACEMENT_POLICY_REPORT_REPORT_PAGE_H_
#define GANTRY_PLACEMENT_POLICY_REPORT_REPORT_PAGE_H_

#include <string>

#include "placement_policy/report/step_report.h"

namespace gantry {

// At most 5 MB, whatever the step: timelines are limited (step_timeline.h), and the page says so.
std::string ReportPage(const StepReport& report);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_REPORT_REPORT_PAGE_H_
