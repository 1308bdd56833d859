// The line of a run's lock file: only what ToLine writes is taken.
#include <optional>
#include <string_view>

#include "base/check.h"
#include "nvme/run_owner.h"
#include "tests/fuzz/fuzz_target.h"

namespace gantry {

bool Fuzz(std::string_view text) {
  const std::optional<RunOwner> owner = RunOwner::Parse(text);
  if (owner.has_value()) GANTRY_CHECK(owner->ToLine() == text) << owner->ToLine();
  return owner.has_value();
}

}  // namespace gantry
