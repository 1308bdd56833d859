#include "benches/suite/read_modify_write.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benches/suite/read_modify_write.cc"
#include <hwy/foreach_target.h>  // includes this file again, once per target
#include <hwy/highway.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/parallel_for.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

enum class ParameterIs { kWritten, kAmongHalves };

// One pass over [begin, end) with the number of arrays known to the compiler.
template <size_t kFloats, size_t kHalves, ParameterIs kParameter>
void Pass(const UpdateArrays& arrays, int64_t begin, int64_t end) {
  const hn::CappedTag<float, 16> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const auto one = hn::Set(d, 1.0f);
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = begin; i < end; i += step) {
    const auto gradient = hn::LoadU(d16, arrays.gradient + i);
    for (size_t a = 0; a < kFloats; ++a) {
      hn::StoreU(hn::Add(hn::LoadU(d, arrays.floats[a] + i), one), d, arrays.floats[a] + i);
    }
    for (size_t a = 0; a < kHalves; ++a) {
      hn::StoreU(hn::Add(hn::LoadU(d16, arrays.halves[a] + i), gradient), d16,
                 arrays.halves[a] + i);
    }
    if constexpr (kParameter == ParameterIs::kWritten) {
      hn::StoreU(gradient, d16, arrays.parameter + i);
    } else {
      static_assert(kHalves > 0);  // else nothing would use the gradient
    }
  }
}

void PassOver(const UpdateArrays& arrays, int64_t begin, int64_t end) {
  const auto count = [](const auto& pointers) {
    int present = 0;
    for (const auto* pointer : pointers) present += pointer != nullptr ? 1 : 0;
    return present;
  };
  const int shape = 100 * count(arrays.floats) + 10 * count(arrays.halves) +
                    (arrays.parameter != nullptr ? 1 : 0);
  switch (shape) {
    case 301:
      return Pass<3, 0, ParameterIs::kWritten>(arrays, begin, end);
    case 201:
      return Pass<2, 0, ParameterIs::kWritten>(arrays, begin, end);
    case 101:
      return Pass<1, 0, ParameterIs::kWritten>(arrays, begin, end);
    case 111:
      return Pass<1, 1, ParameterIs::kWritten>(arrays, begin, end);
    case 220:
      return Pass<2, 2, ParameterIs::kAmongHalves>(arrays, begin, end);
    default:
      GANTRY_CHECK(false) << "no pass over arrays of shape " << shape;
  }
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace gantry {
namespace {

HWY_EXPORT(PassOver);

constexpr int64_t kTaskElements = int64_t{32} * 1024;

}  // namespace

int64_t UpdateArrays::bytes_per_element() const {
  int64_t bytes = gradient != nullptr ? 2 : 0;
  if (parameter != nullptr) bytes += 2;
  for (const float* array : floats) bytes += array != nullptr ? 8 : 0;
  for (const uint16_t* array : halves) bytes += array != nullptr ? 4 : 0;
  return bytes;
}

void ReadModifyWrite(const UpdateArrays& arrays, ThreadTeam* team) {
  GANTRY_CHECK_EQ(arrays.count % 16, 0);
  GANTRY_CHECK(arrays.gradient != nullptr);
  team->For({.count = arrays.count, .grain = kTaskElements}, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(PassOver)(arrays, begin, end);
  });
}

}  // namespace gantry

#endif  // HWY_ONCE
