// Elements of files and stores as floats and back. Rounding is to nearest, ties to even.
// Stateless; thread-safe.
#ifndef GANTRY_TRAINER_HUGGING_FACE_ELEMENT_CONVERSION_H_
#define GANTRY_TRAINER_HUGGING_FACE_ELEMENT_CONVERSION_H_

#include <cstddef>
#include <span>

#include "base/dtype.h"

namespace gantry {

// REQUIRES of both: `bytes` holds as many elements of `dtype` as there are `floats`, and is aligned
// to them.
void ToFloats(std::span<const std::byte> bytes, DType dtype, std::span<float> floats);
void FromFloats(std::span<const float> floats, DType dtype, std::span<std::byte> bytes);

}  // namespace gantry

#endif  // GANTRY_TRAINER_HUGGING_FACE_ELEMENT_CONVERSION_H_
