#include "trainer/autograd/activation.h"

#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace gantry {

absl::StatusOr<Activation> Activation::Allocate(ActivationArena& arena, MatrixShape shape,
                                                DType dtype) {
  GANTRY_CHECK(shape.rows >= 0 && shape.cols >= 0) << shape.rows << " x " << shape.cols;
  GANTRY_ASSIGN_OR_RETURN(ArenaBuffer buffer,
                          arena.Allocate(shape.rows * shape.cols * SizeOf(dtype)));
  Activation activation(shape, dtype);
  activation.buffer_ = std::make_shared<ArenaBuffer>(std::move(buffer));
  return activation;
}

MatrixView Activation::matrix() const {
  GANTRY_CHECK(has_memory());
  return {.data = buffer_->data(),
          .dtype = dtype_,
          .rows = shape_.rows,
          .cols = shape_.cols,
          .row_stride = shape_.cols};
}

}  // namespace gantry
