// The header of a safetensors file: eight bytes of length, little endian, then JSON that says of
// each tensor its type, its shape and which bytes of the data block behind it are its own.
//
// Headers are somebody else's: whatever they hold, parsing takes time and memory in proportion to
// the text, of which there is at most kSafetensorsHeaderBytesMax, and what is accepted is
// consistent: names differ, types, shapes and bytes agree, and the tensors cover the data block
// without gaps or overlaps. No number in it can overflow.
//
// Pure functions of text; thread-safe.
#ifndef GANTRY_TRAINER_SAFETENSORS_HEADER_H_
#define GANTRY_TRAINER_SAFETENSORS_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/safetensors/stored_dtype.h"

namespace gantry {

inline constexpr int64_t kSafetensorsLengthBytes = 8;
inline constexpr int64_t kSafetensorsHeaderBytesMax = 100'000'000;  // as the reference
// More than twice what the largest published model has, and so on.
inline constexpr int64_t kStoredTensorsMax = int64_t{1} << 18;
inline constexpr size_t kStoredNameBytesMax = 1024;
inline constexpr size_t kStoredRankMax = 32;
inline constexpr size_t kStoredMetadataMax = size_t{1} << 14;  // entries

struct StoredTensor {
  std::string name;
  StoredDType dtype;
  std::vector<int64_t> shape;  // row-major; empty: one element
  int64_t offset;              // bytes from the start of the data block
  int64_t bytes;
  size_t file = 0;  // which of a reader's files
};

using StoredMetadata = std::map<std::string, std::string, std::less<>>;

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // by offset
  StoredMetadata metadata;            // "__metadata__"
};

// The bytes of a tensor of this type and shape. Errors: kInvalidArgument when they are more than
// 2^63 - 1, or end within a byte, or an extent is negative.
absl::StatusOr<int64_t> StoredBytes(StoredDType dtype, std::span<const int64_t> shape);

// `json` is what follows the length; `data_bytes` what follows the header in the file. Errors:
// kInvalidArgument naming the tensor, the field, the value and what is allowed.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t data_bytes);

// The length and the JSON, padded with spaces to a multiple of eight bytes, byte for byte as the
// reference implementation writes it. REQUIRES: tensors by offset. Errors: kInvalidArgument above
// kSafetensorsHeaderBytesMax.
absl::StatusOr<std::string> SerializeSafetensorsHeader(const SafetensorsHeader& header);

}  // namespace gantry

#endif  // GANTRY_TRAINER_SAFETENSORS_HEADER_H_
