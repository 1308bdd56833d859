// The page of a report before it is filled: report_page.html as it lies beside this file. Its marks
// {{title}}, {{subtitle}}, {{cards}}, {{tables}} and {{data}} stand for what comes there.
#ifndef GANTRY_PLACEMENT_POLICY_REPORT_REPORT_PAGE_HTML_H_
#define GANTRY_PLACEMENT_POLICY_REPORT_REPORT_PAGE_HTML_H_

#include <string_view>

namespace gantry {

std::string_view ReportPageHtml();

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_REPORT_REPORT_PAGE_HTML_H_
