#include "kernels/views.h"

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/check.h"
#include "base/dtype.h"

namespace gantry {
namespace {

bool IsEmpty(const ConstMatrixView& view) { return view.rows == 0 || view.cols == 0; }

// REQUIRES: not empty.
const std::byte* EndOf(const ConstMatrixView& view) {
  return view.data + ((view.rows - 1) * view.row_stride + view.cols) * SizeOf(view.dtype);
}

}  // namespace

void CheckMatrix(const ConstMatrixView& view, MatrixShape shape, DType dtype, const char* name) {
  GANTRY_CHECK(ShapeOf(view) == shape) << name << " is [" << view.rows << ", " << view.cols
                                       << "], not [" << shape.rows << ", " << shape.cols << "]";
  GANTRY_CHECK(view.dtype == dtype) << name << " is " << view.dtype << ", not " << dtype;
  GANTRY_CHECK(view.row_stride >= view.cols || view.rows <= 1)
      << name << ": stride " << view.row_stride << ", columns " << view.cols;
}

bool RangesOverlap(const ConstMatrixView& a, const ConstMatrixView& b) {
  if (IsEmpty(a) || IsEmpty(b)) return false;
  const std::less<const std::byte*> before;
  return before(a.data, EndOf(b)) && before(b.data, EndOf(a));
}

}  // namespace gantry
