// model.safetensors.index.json: which file of a sharded model holds which tensor.
//
// Its `metadata` is not read: published files have a total_size that counts tied tensors twice, or
// is of another precision, and the sizes are in the headers. Files are named by plain names only,
// so that no index leads out of its folder.
//
// Pure functions of text; thread-safe.
#ifndef GANTRY_TRAINER_SAFETENSORS_SHARD_INDEX_H_
#define GANTRY_TRAINER_SAFETENSORS_SHARD_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/bytes.h"

namespace gantry {

inline constexpr Bytes kShardIndexBytesMax = 64_MiB;
inline constexpr size_t kShardFilesMax = 10'000;

// The file of each tensor, by tensor name.
using ShardIndex = std::map<std::string, std::string, std::less<>>;

// Errors: kInvalidArgument for text that is no such index, a name that is there twice, no tensor at
// all, and a file name that is not plain: it must end in .safetensors and hold no '/'.
absl::StatusOr<ShardIndex> ParseShardIndex(std::string_view json);

// With the sum of the tensors' bytes as total_size, as Transformers writes it.
std::string SerializeShardIndex(const ShardIndex& index, int64_t total_bytes);

}  // namespace gantry

#endif  // GANTRY_TRAINER_SAFETENSORS_SHARD_INDEX_H_
