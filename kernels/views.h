// Views of vectors and matrices in host memory: the argument types of every kernel.
//
//   MatrixView x = ViewOf(std::span(values), {.rows = tokens, .cols = channels});
//   MatrixView q = qkv.Columns(0, heads * head_dim);      // strided slice of a fused activation
//
// Row-major; consecutive rows are `row_stride` elements apart (at least `cols`), elements of a row
// are adjacent. Elements are f32 or bf16. Views own nothing and are cheap to copy; whoever holds
// the memory keeps it alive and unmoved during a call. A mutable view converts to a const one.
// Data is aligned to its element size; nothing more is required.
#ifndef GANTRY_KERNELS_VIEWS_H_
#define GANTRY_KERNELS_VIEWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/check.h"
#include "base/dtype.h"

namespace gantry {

// Whether a result replaces what the destination holds or is added to it.
enum class Accumulate : uint8_t { kOverwrite, kAdd };

template <typename Byte>
struct BasicVectorView {
  template <typename T>
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;

  Byte* data;
  DType dtype;
  int64_t size;

  // REQUIRES: T matches dtype.
  template <typename T>
  Element<T>* As() const {
    GANTRY_DCHECK_EQ(dtype, DTypeOf<T>::value);
    return reinterpret_cast<Element<T>*>(data);
  }
  BasicVectorView Part(int64_t begin, int64_t count) const {
    return {.data = data + begin * SizeOf(dtype), .dtype = dtype, .size = count};
  }
  operator BasicVectorView<const std::byte>() const  // NOLINT: implicit by design
    requires(!std::is_const_v<Byte>)
  {
    return {.data = data, .dtype = dtype, .size = size};
  }
};

template <typename Byte>
struct BasicMatrixView {
  template <typename T>
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;

  Byte* data;
  DType dtype;
  int64_t rows;
  int64_t cols;
  int64_t row_stride;  // elements

  // The first element of row `row`. REQUIRES: T matches dtype.
  template <typename T>
  Element<T>* Row(int64_t row) const {
    GANTRY_DCHECK_EQ(dtype, DTypeOf<T>::value);
    return reinterpret_cast<Element<T>*>(data) + row * row_stride;
  }
  BasicVectorView<Byte> RowView(int64_t row) const {
    return {.data = data + row * row_stride * SizeOf(dtype), .dtype = dtype, .size = cols};
  }
  BasicMatrixView Rows(int64_t begin, int64_t count) const {
    GANTRY_CHECK(begin >= 0 && count >= 0 && begin + count <= rows)
        << "rows " << begin << " + " << count << " of " << rows;
    return {.data = data + begin * row_stride * SizeOf(dtype),
            .dtype = dtype,
            .rows = count,
            .cols = cols,
            .row_stride = row_stride};
  }
  BasicMatrixView Columns(int64_t begin, int64_t count) const {
    GANTRY_CHECK(begin >= 0 && count >= 0 && begin + count <= cols)
        << "columns " << begin << " + " << count << " of " << cols;
    return {.data = data + begin * SizeOf(dtype),
            .dtype = dtype,
            .rows = rows,
            .cols = count,
            .row_stride = row_stride};
  }
  // All elements in order. REQUIRES: no gaps between rows.
  BasicVectorView<Byte> Flat() const {
    GANTRY_CHECK(row_stride == cols || rows <= 1) << "stride " << row_stride << " of " << cols;
    return {.data = data, .dtype = dtype, .size = rows * cols};
  }
  operator BasicMatrixView<const std::byte>() const  // NOLINT: implicit by design
    requires(!std::is_const_v<Byte>)
  {
    return {.data = data, .dtype = dtype, .rows = rows, .cols = cols, .row_stride = row_stride};
  }
};

using VectorView = BasicVectorView<std::byte>;
using ConstVectorView = BasicVectorView<const std::byte>;
using MatrixView = BasicMatrixView<std::byte>;
using ConstMatrixView = BasicMatrixView<const std::byte>;

struct MatrixShape {
  int64_t rows;
  int64_t cols;
  bool operator==(const MatrixShape&) const = default;
};

template <typename Byte>
MatrixShape ShapeOf(const BasicMatrixView<Byte>& view) {
  return {.rows = view.rows, .cols = view.cols};
}

// Contiguous views of `values`. REQUIRES: T is float or BFloat16, perhaps const; the span holds
// exactly the shape's elements.
template <typename T, size_t kExtent>
auto ViewOf(std::span<T, kExtent> values) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return BasicVectorView<Byte>{.data = reinterpret_cast<Byte*>(values.data()),
                               .dtype = DTypeOf<std::remove_const_t<T>>::value,
                               .size = static_cast<int64_t>(values.size())};
}
template <typename T, size_t kExtent>
auto ViewOf(std::span<T, kExtent> values, MatrixShape shape) {
  GANTRY_CHECK_EQ(static_cast<int64_t>(values.size()), shape.rows * shape.cols);
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return BasicMatrixView<Byte>{.data = reinterpret_cast<Byte*>(values.data()),
                               .dtype = DTypeOf<std::remove_const_t<T>>::value,
                               .rows = shape.rows,
                               .cols = shape.cols,
                               .row_stride = shape.cols};
}

// Calls function(T*) with a null pointer of the element type named by `dtype`, for kernels
// written as templates. REQUIRES: dtype is f32 or bf16.
template <typename Function>
void WithElementType(DType dtype, const Function& function) {
  GANTRY_CHECK(dtype == DType::kF32 || dtype == DType::kBF16) << "no kernel for " << dtype;
  if (dtype == DType::kF32) {
    function(static_cast<float*>(nullptr));
  } else {
    function(static_cast<BFloat16*>(nullptr));
  }
}

// Aborts unless `view` has the shape and dtype; `name` is printed.
void CheckMatrix(const ConstMatrixView& view, MatrixShape shape, DType dtype, const char* name);

// True when the two views may share an element. Exact for whole buffers, conservative (compares
// the address ranges) for interleaved slices.
bool RangesOverlap(const ConstMatrixView& a, const ConstMatrixView& b);

}  // namespace gantry

#endif  // GANTRY_KERNELS_VIEWS_H_
