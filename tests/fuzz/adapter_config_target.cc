// PEFT's adapter_config.json: what is taken comes back from the text that is made of it.
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/hugging_face/adapter_config.h"

namespace gantry {

bool Fuzz(std::string_view text) {
  const absl::StatusOr<AdapterConfig> config = ParseAdapterConfig(text);
  if (!config.ok()) return false;
  const std::string made = MakeAdapterConfigJson(*config);
  const absl::StatusOr<AdapterConfig> again = ParseAdapterConfig(made);
  GANTRY_CHECK_OK(again.status());
  GANTRY_CHECK(*again == *config) << made;
  return true;
}

}  // namespace gantry
