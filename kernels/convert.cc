#include "kernels/convert.h"

#include <cstdint>
#include <cstring>

#include "kernels/simd_targets.h"
#include "kernels/views.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

void ToFloat(const ConstVectorView& from, float* to) {
  WithElementType(from.dtype, [&]<typename T>(T*) {
    const T* source = from.As<T>();
    for (int64_t i = 0; i < from.size; i += 16) {
      StoreFirst(LoadFirst(source + i, from.size - i), to + i, from.size - i);
    }
  });
}

void FromFloat(const float* from, const VectorView& to) {
  WithElementType(to.dtype, [&]<typename T>(T*) {
    T* target = to.As<T>();
    for (int64_t i = 0; i < to.size; i += 16) {
      StoreFirst(LoadFirst(from + i, to.size - i), target + i, to.size - i);
    }
  });
}

void AddFromFloat(const float* from, const VectorView& to) {
  WithElementType(to.dtype, [&]<typename T>(T*) {
    T* target = to.As<T>();
    for (int64_t i = 0; i < to.size; i += 16) {
      const int64_t count = to.size - i;
      StoreFirst(LoadFirst(target + i, count) + LoadFirst(from + i, count), target + i, count);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {

HWY_EXPORT(ToFloat);
HWY_EXPORT(FromFloat);
HWY_EXPORT(AddFromFloat);

void ConvertToFloat(const ConstVectorView& from, float* to) {
  HWY_DYNAMIC_DISPATCH(ToFloat)(from, to);
}

void ConvertFromFloat(const float* from, const VectorView& to, Accumulate accumulate) {
  if (accumulate == Accumulate::kAdd) {
    HWY_DYNAMIC_DISPATCH(AddFromFloat)(from, to);
  } else {
    HWY_DYNAMIC_DISPATCH(FromFloat)(from, to);
  }
}

void FillZero(const VectorView& to) {
  if (to.size > 0) std::memset(to.data, 0, static_cast<size_t>(to.size * SizeOf(to.dtype)));
}

}  // namespace gantry
#endif  // HWY_ONCE
