// An index of shards: what is taken names files of its own folder only, and comes back from its own
// text.
#include <string_view>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/safetensors/shard_index.h"

namespace gantry {

bool Fuzz(std::string_view text) {
  const absl::StatusOr<ShardIndex> index = ParseShardIndex(text);
  if (!index.ok()) return false;
  for (const auto& [tensor, file] : *index) {
    GANTRY_CHECK(file.find('/') == file.npos && file != ".." && file != ".") << file;
  }
  const absl::StatusOr<ShardIndex> again = ParseShardIndex(SerializeShardIndex(*index, 0));
  GANTRY_CHECK(again.ok() && *again == *index);
  return true;
}

}  // namespace gantry
