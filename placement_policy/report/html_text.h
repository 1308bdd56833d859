// Text inside HTML.
#ifndef GANTRY_PLACEMENT_POLICY_REPORT_HTML_TEXT_H_
#define GANTRY_PLACEMENT_POLICY_REPORT_HTML_TEXT_H_

#include <string>
#include <string_view>

namespace gantry {

// Text as the content of an element or of a quoted attribute: & < > " ' are escaped, control
// characters but newline and tab, and bytes that are no UTF-8, are replaced.
std::string HtmlText(std::string_view text);

// JSON as the content of a script element: nothing in it can end the element.
std::string JsonForScript(std::string_view json);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_REPORT_HTML_TEXT_H_
