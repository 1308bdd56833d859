// The header of a safetensors file in front of twelve bytes: what is taken covers them without gaps
// or overlaps, and comes back from its own text.
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/safetensors/header.h"

namespace gantry {

bool Fuzz(std::string_view text) {
  constexpr int64_t kDataBytes = 12;
  const absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(text, kDataBytes);
  if (!header.ok()) return false;
  int64_t end = 0;
  for (const StoredTensor& tensor : header->tensors) {
    GANTRY_CHECK_EQ(tensor.offset, end);
    const absl::StatusOr<int64_t> bytes = StoredBytes(tensor.dtype, tensor.shape);
    GANTRY_CHECK(bytes.ok() && *bytes == tensor.bytes) << tensor.name;
    end += tensor.bytes;
  }
  GANTRY_CHECK_EQ(end, kDataBytes);
  const absl::StatusOr<std::string> written = SerializeSafetensorsHeader(*header);
  GANTRY_CHECK_OK(written.status());
  const auto again = ParseSafetensorsHeader(
      std::string_view(*written).substr(kSafetensorsLengthBytes), kDataBytes);
  GANTRY_CHECK_OK(again.status());
  GANTRY_CHECK_EQ(again->tensors.size(), header->tensors.size());
  GANTRY_CHECK(again->metadata == header->metadata);
  return true;
}

}  // namespace gantry
