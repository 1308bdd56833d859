// What the attention kernels know of their problem: which keys are visible, and the padded
// dimensions that they are compiled for. Included by .cu files.
#ifndef GANTRY_KERNELS_CUDA_ATTENTION_PLAN_CUH_
#define GANTRY_KERNELS_CUDA_ATTENTION_PLAN_CUH_

#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "base/dtype.h"
#include "device/cuda/device_code.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/views.h"

namespace gantry::cuda {

// What is visible, as plain numbers.
struct Visibility {
  bool causal;
  int window;  // 0: none

  __device__ bool Sees(int query, int key) const {
    return (!causal || key <= query) && (window == 0 || key > query - window);
  }
  // The keys that some of the queries [first, end) of a document of `length` see.
  __device__ int FirstKey(int first_query) const {
    const int first = first_query - window + 1;
    return window == 0 || first < 0 ? 0 : first;
  }
  __device__ int KeyEnd(int query_end, int length) const {
    return causal && query_end < length ? query_end : length;
  }
  // The queries that see some of the keys [first, end).
  __device__ int FirstQuery(int first_key) const { return causal ? first_key : 0; }
  __device__ int QueryEnd(int key_end, int length) const {
    const int end = key_end + window - 1;
    return window > 0 && end < length ? end : length;
  }
  // Whether all of the queries [query, query + queries) see all of the keys, which exist.
  __device__ bool SeesAll(int query, int queries, int key, int keys) const {
    return (!causal || key + keys - 1 <= query) &&
           (window == 0 || key > query + queries - 1 - window);
  }
};

// What all kernels know.
struct AttentionPlan {
  int64_t rows;
  const int32_t* starts;
  int group;  // query heads to a key/value head
  int key_dim;
  int value_dim;
  float scale;
  Visibility visibility;
};

inline AttentionPlan PlanOf(const AttentionLayout& layout, int64_t rows) {
  return {.rows = rows,
          .starts = layout.starts.data(),
          .group = static_cast<int>(layout.query_heads / layout.kv_heads),
          .key_dim = static_cast<int>(layout.key_dim),
          .value_dim = static_cast<int>(layout.value_dim),
          .scale = layout.scale,
          .visibility = {.causal = layout.mask == AttentionMask::kCausal,
                         .window = static_cast<int>(layout.window)}};
}

template <typename T>
__device__ __forceinline__ Rows<T> From(const Rows<T>& rows, int64_t row, int64_t col) {
  return {.data = rows[row] + col, .stride = rows.stride};
}

// Aborts where the layout is none.
inline void CheckAttentionLayout(const AttentionLayout& layout) {
  GANTRY_CHECK(layout.kv_heads > 0 && layout.query_heads % layout.kv_heads == 0 &&
               layout.query_heads <= 65535)
      << layout.query_heads << " query heads, " << layout.kv_heads << " key/value heads";
  for (const int64_t dim : {layout.key_dim, layout.value_dim}) {
    GANTRY_CHECK(dim > 0 && dim <= 256 && dim % 8 == 0) << "dimension " << dim;
  }
  GANTRY_CHECK(layout.scale > 0.0F) << "scale " << layout.scale;
  GANTRY_CHECK(layout.window >= 0 && (layout.window == 0 || layout.mask == AttentionMask::kCausal))
      << "window " << layout.window;
  GANTRY_CHECK(!layout.starts.empty() && layout.starts.size() <= 65536)
      << layout.starts.size() << " starts";
  GANTRY_CHECK(layout.longest >= 0 && layout.longest < (int64_t{1} << 30));
}

// Aborts where the view does not hold `heads` of `dim` for each row of q, aligned.
struct HeadsOf {
  int64_t heads;
  int64_t dim;
};
inline void CheckAttentionView(const ConstMatrixView& view, const ConstMatrixView& q,
                               const HeadsOf& heads) {
  CheckMatrix(view, {.rows = q.rows, .cols = heads.heads * heads.dim}, q.dtype,
              "attention operand");
  GANTRY_CHECK(PacksOfEight(view)) << "an attention operand is not aligned to 16 bytes";
}

// Calls function(T*, std::integral_constants of the padded dimensions).
template <typename Function>
void WithAttentionTypes(DType dtype, const AttentionLayout& layout, const Function& function) {
  GANTRY_CHECK(dtype == DType::kBF16 || dtype == DType::kF16) << "no attention for " << dtype;
  const auto with_type = [&]<typename T>(T* type) {
    using std::integral_constant;
    const int64_t key = layout.key_dim;
    const int64_t value = layout.value_dim;
    if (key <= 64 && value <= 64) {
      return function(type, integral_constant<int, 64>{}, integral_constant<int, 64>{});
    }
    if (key <= 128 && value <= 128) {
      return function(type, integral_constant<int, 128>{}, integral_constant<int, 128>{});
    }
    if (key <= 192 && value <= 128) {
      return function(type, integral_constant<int, 192>{}, integral_constant<int, 128>{});
    }
    function(type, integral_constant<int, 256>{}, integral_constant<int, 256>{});
  };
  if (dtype == DType::kBF16) return with_type(static_cast<BFloat16*>(nullptr));
  with_type(static_cast<Float16*>(nullptr));
}

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_ATTENTION_PLAN_CUH_
