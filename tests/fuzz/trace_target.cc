// A trace that is taken is valid, and its text gives the same text again.
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "placement_policy/trace.h"
#include "placement_policy/trace_file.h"
#include "tests/fuzz/fuzz_target.h"

namespace gantry {

bool Fuzz(std::string_view text) {
  const absl::StatusOr<Trace> trace = ParseTrace(text);
  if (!trace.ok()) return false;
  GANTRY_CHECK_OK(trace->Validate());
  const std::string written = FormatTrace(*trace, {});
  const absl::StatusOr<Trace> again = ParseTrace(written);
  GANTRY_CHECK_OK(again.status());
  GANTRY_CHECK(FormatTrace(*again, {}) == written) << written;
  return true;
}

}  // namespace gantry
