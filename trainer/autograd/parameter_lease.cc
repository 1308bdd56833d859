#include "trainer/autograd/parameter_lease.h"

namespace gantry {

ConstMatrixView LeasedParameters::Value(int i, MatrixShape shape) const {
  const LeasedTensor& tensor = At(i);
  GANTRY_CHECK(tensor.parameter != nullptr) << "parameter " << i << " is not leased for reading";
  GANTRY_CHECK_EQ(shape.rows * shape.cols, tensor.elements) << tensor.tensor;
  return {.data = tensor.parameter,
          .dtype = tensor.dtype,
          .rows = shape.rows,
          .cols = shape.cols,
          .row_stride = shape.cols};
}

MatrixView LeasedParameters::Gradient(int i, MatrixShape shape) const {
  const LeasedTensor& tensor = At(i);
  GANTRY_CHECK(tensor.gradient != nullptr) << "no gradient leased for parameter " << i;
  GANTRY_CHECK_EQ(shape.rows * shape.cols, tensor.elements) << tensor.tensor;
  return {.data = tensor.gradient,
          .dtype = tensor.gradient_dtype,
          .rows = shape.rows,
          .cols = shape.cols,
          .row_stride = shape.cols};
}

Accumulate LeasedParameters::GradientAccumulate(int i) const {
  const LeasedTensor& tensor = At(i);
  GANTRY_CHECK(tensor.gradient != nullptr) << "no gradient leased for parameter " << i;
  return tensor.gradient_content == GradientContent::kEmpty ? Accumulate::kOverwrite
                                                            : Accumulate::kAdd;
}

}  // namespace gantry
