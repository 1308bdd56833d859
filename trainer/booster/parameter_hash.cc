#include "trainer/booster/parameter_hash.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "chunk/block.h"
#include "chunk/chunk_layout.h"
#include "gemini/parameter_store.h"

namespace gantry {

absl::StatusOr<std::string> HashParameters(ParameterStore& store) {
  std::vector<std::byte> buffer(static_cast<size_t>((1_MiB).count()));
  Hasher hasher;
  const ChunkLayout& layout = store.layout();
  for (int64_t i = 0; i < layout.tensor_count(); ++i) {
    const TensorId id(i);
    const int64_t element_bytes = SizeOf(layout.tensor(id).dtype);
    const int64_t elements = layout.placement(id).elements;
    const int64_t per_piece = std::ssize(buffer) / element_bytes;
    for (int64_t first = 0; first < elements; first += per_piece) {
      const int64_t count = std::min(per_piece, elements - first);
      const auto piece = std::span(buffer).first(static_cast<size_t>(count * element_bytes));
      GANTRY_RETURN_IF_ERROR(store.ReadState(StateKind::kParameter, id, first, piece));
      hasher.Update(std::span<const std::byte>(piece));
    }
  }
  return hasher.HexDigest();
}

}  // namespace gantry
