// A Hugging Face config.json: a shape that is taken is valid.
#include <string_view>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "placement_policy/model_config.h"
#include "placement_policy/model_shape.h"
#include "tests/fuzz/fuzz_target.h"

namespace gantry {

bool Fuzz(std::string_view text) {
  const absl::StatusOr<ModelShape> shape = ParseModelConfig(text);
  if (shape.ok()) GANTRY_CHECK_OK(shape->Validate());
  return shape.ok();
}

}  // namespace gantry
