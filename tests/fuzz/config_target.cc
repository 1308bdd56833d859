// A config that is taken comes back from its own dump; one that is refused changes nothing.
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/booster/run_config.h"
#include "trainer/cli/config.h"

namespace gantry {

bool Fuzz(std::string_view text) {
  RunConfig config;
  const std::string defaults = DumpYaml(config);
  const absl::Status applied = ApplyYaml(text, "fuzz", config);
  const std::string dump = DumpYaml(config);
  if (!applied.ok()) {
    GANTRY_CHECK(dump == defaults) << dump;
    return false;
  }
  ValidateTraining(config).IgnoreError();
  RunConfig again;
  GANTRY_CHECK_OK(ApplyYaml(dump, "dump", again));
  GANTRY_CHECK(DumpYaml(again) == dump) << dump;
  return true;
}

}  // namespace gantry
