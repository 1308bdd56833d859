#include "trainer/safetensors/stored_dtype.h"

#include <array>
#include <cstddef>

namespace gantry {
namespace {

struct Row {
  std::string_view name;
  int bits;
};
constexpr std::array<Row, kStoredDTypeCount> kRows = {{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};

}  // namespace

std::string_view Name(StoredDType dtype) { return kRows[static_cast<size_t>(dtype)].name; }

int BitsOf(StoredDType dtype) { return kRows[static_cast<size_t>(dtype)].bits; }

std::optional<StoredDType> FindStoredDType(std::string_view name) {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<StoredDType>(i);
  }
  return std::nullopt;
}

StoredDType StoredForm(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return StoredDType::kBF16;
    case DType::kF16:
      return StoredDType::kF16;
    case DType::kF32:
      break;
  }
  return StoredDType::kF32;
}

std::optional<DType> LoadableForm(StoredDType dtype) {
  if (dtype == StoredDType::kF32) return DType::kF32;
  if (dtype == StoredDType::kBF16) return DType::kBF16;
  if (dtype == StoredDType::kF16) return DType::kF16;
  return std::nullopt;
}

}  // namespace gantry
