// A tokenizer_config.json: what is taken has templates with names, and a length.
#include <string_view>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/tokenizer/tokenizer_config.h"

namespace gantry {

bool Fuzz(std::string_view json) {
  const absl::StatusOr<TokenizerConfig> config = ParseTokenizerConfig(json);
  if (!config.ok()) return false;
  if (config->model_max_length.has_value()) GANTRY_CHECK(*config->model_max_length > 0);
  return true;
}

}  // namespace gantry
