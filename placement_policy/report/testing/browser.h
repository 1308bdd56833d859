// Opens pages in a headless Chromium (Debian's chromium-headless-shell), for tests.
#ifndef GANTRY_PLACEMENT_POLICY_REPORT_TESTING_BROWSER_H_
#define GANTRY_PLACEMENT_POLICY_REPORT_TESTING_BROWSER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gantry {

struct OpenedPage {
  std::string dom;      // as it is when all scripts have run
  std::string console;  // lines that scripts, or the browser about the page, wrote to the console
  // Of a picture of its first 1280 x 1800 pixels.
  int64_t colours = 0;
  double commonest = 0.0;  // share of the pixels that have the commonest colour
};

enum class Picture { kNone, kTaken };

// Writes the page into the test's temporary folder under `name`, opens it from there as a file, and
// closes it. Errors: kUnavailable without the browser or python3, with what to install.
absl::StatusOr<OpenedPage> OpenInBrowser(const std::string& name, std::string_view html,
                                         Picture picture);

// The value of an attribute of the page's <html> element; empty without it.
std::string RootAttribute(const OpenedPage& page, const std::string& name);

// The page with a script at its end.
std::string WithScript(std::string_view html, std::string_view script);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_REPORT_TESTING_BROWSER_H_
