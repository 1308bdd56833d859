#include "base/dtype.h"

#include <bit>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/strings.h"

namespace gantry {
std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
  }
  GANTRY_CHECK(false) << "no such dtype: " << static_cast<int>(dtype);
  return {};
}

absl::StatusOr<DType> ParseDType(std::string_view name) {
  if (name == "f32" || name == "fp32" || name == "float32") return DType::kF32;
  if (name == "bf16" || name == "bfloat16") return DType::kBF16;
  if (name == "f16" || name == "fp16" || name == "float16") return DType::kF16;
  return InvalidArgument("unknown dtype '", name, "': expected f32, bf16 or f16");
}

}  // namespace gantry
