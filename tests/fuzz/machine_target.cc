// A machine that is taken is valid, and its text gives the same text again.
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "placement_policy/hardware.h"
#include "placement_policy/machine_file.h"
#include "tests/fuzz/fuzz_target.h"

namespace gantry {

bool Fuzz(std::string_view text) {
  const absl::StatusOr<Hardware> hardware = ParseMachine(text);
  if (!hardware.ok()) return false;
  GANTRY_CHECK_OK(hardware->Validate());
  const std::string written = FormatMachine(*hardware);
  const absl::StatusOr<Hardware> again = ParseMachine(written);
  GANTRY_CHECK_OK(again.status());
  GANTRY_CHECK(FormatMachine(*again) == written) << written;
  return true;
}

}  // namespace gantry
