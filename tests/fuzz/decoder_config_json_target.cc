// A Hugging Face config.json for a model that runs: one that is taken is valid, and comes back from
// the text that is made of it.
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/dtype.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/hugging_face/decoder_config_json.h"
#include "trainer/models/decoder_config.h"

namespace gantry {

bool Fuzz(std::string_view text) {
  WithDType(text, DType::kBF16).status().IgnoreError();
  const absl::StatusOr<HuggingFaceConfig> config =
      ParseHuggingFaceConfig(text, ModelPurpose::kInference);
  if (!config.ok()) return false;
  GANTRY_CHECK_OK(ValidateDecoderConfig(config->decoder));
  const std::string made = MakeConfigJson(config->decoder, DType::kBF16);
  const auto again = ParseHuggingFaceConfig(made, ModelPurpose::kTraining);
  GANTRY_CHECK_OK(again.status());
  GANTRY_CHECK(again->decoder == config->decoder) << made;
  return true;
}

}  // namespace gantry
