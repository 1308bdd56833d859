#include "trainer/hugging_face/element_conversion.h"

#include <cstdint>

#include "base/check.h"
#include "kernels/convert.h"
#include "kernels/views.h"

namespace gantry {
namespace {

void CheckSizes(size_t bytes, DType dtype, size_t floats) {
  GANTRY_CHECK_EQ(static_cast<int64_t>(bytes), static_cast<int64_t>(floats) * SizeOf(dtype));
}

}  // namespace

void ToFloats(std::span<const std::byte> bytes, DType dtype, std::span<float> floats) {
  CheckSizes(bytes.size(), dtype, floats.size());
  if (dtype == DType::kF16) {
    for (size_t i = 0; i < floats.size(); ++i) {
      floats[i] = LoadElement(dtype, bytes.data(), static_cast<int64_t>(i));
    }
    return;
  }
  ConvertToFloat({.data = bytes.data(), .dtype = dtype, .size = std::ssize(floats)}, floats.data());
}

void FromFloats(std::span<const float> floats, DType dtype, std::span<std::byte> bytes) {
  CheckSizes(bytes.size(), dtype, floats.size());
  if (dtype == DType::kF16) {
    for (size_t i = 0; i < floats.size(); ++i) {
      StoreElement(dtype, bytes.data(), static_cast<int64_t>(i), floats[i]);
    }
    return;
  }
  ConvertFromFloat(floats.data(),
                   {.data = bytes.data(), .dtype = dtype, .size = std::ssize(floats)},
                   Accumulate::kOverwrite);
}

}  // namespace gantry
