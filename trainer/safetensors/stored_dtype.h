// Element types of a safetensors file. All are known, so that a file with any of them can be
// listed; loadable are those that DType has.
#ifndef GANTRY_TRAINER_SAFETENSORS_STORED_DTYPE_H_
#define GANTRY_TRAINER_SAFETENSORS_STORED_DTYPE_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string_view>

#include "base/dtype.h"

namespace gantry {

// In the order of the reference implementation, whose files begin with the highest.
enum class StoredDType : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};
inline constexpr int kStoredDTypeCount = 22;

std::string_view Name(StoredDType dtype);  // as in files: "BOOL", "F4", ..., "U64"
inline std::ostream& operator<<(std::ostream& out, StoredDType dtype) { return out << Name(dtype); }
int BitsOf(StoredDType dtype);  // of one element
std::optional<StoredDType> FindStoredDType(std::string_view name);

StoredDType StoredForm(DType dtype);
std::optional<DType> LoadableForm(StoredDType dtype);  // none but for F32, BF16 and F16

}  // namespace gantry

#endif  // GANTRY_TRAINER_SAFETENSORS_STORED_DTYPE_H_
