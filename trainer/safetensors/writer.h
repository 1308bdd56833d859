// Writes tensors as safetensors files, as Transformers reads them: model.safetensors, or, when that
// would be too large, model-00001-of-00003.safetensors and so on with model.safetensors.index.json,
// which is written last.
//
//   GANTRY_ASSIGN_OR_RETURN(TemporaryDirectory folder, TemporaryDirectory::Create(&files, "out"));
//   GANTRY_RETURN_IF_ERROR(WriteSafetensors({.files = &files, .folder = folder.path()}, tensors,
//       [&](size_t tensor, int64_t first_byte, std::span<std::byte> piece) { ... }));
//   GANTRY_RETURN_IF_ERROR(folder.Commit());
//
// Bytes pass through one buffer of kSafetensorsPieceBytes. A stateless function; thread-safe.
#ifndef GANTRY_TRAINER_SAFETENSORS_WRITER_H_
#define GANTRY_TRAINER_SAFETENSORS_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/file_calls.h"
#include "trainer/safetensors/header.h"
#include "trainer/safetensors/stored_dtype.h"

namespace gantry {

inline constexpr Bytes kSafetensorsPieceBytes = 4_MiB;
inline constexpr Bytes kShardBytesMax = Bytes(5'000'000'000);  // "5GB", as Transformers

struct TensorToStore {
  std::string name;
  StoredDType dtype;
  std::vector<int64_t> shape;
};

// Fills `piece` with the bytes of tensors[tensor] from `first_byte` on, row-major. Called for each
// tensor once from its beginning to its end, the tensors in the order of the files; pieces but the
// last of a tensor have kSafetensorsPieceBytes.
using TensorSource =
    absl::FunctionRef<absl::Status(size_t tensor, int64_t first_byte, std::span<std::byte> piece)>;

struct SafetensorsWriting {
  FileCalls* files;
  std::string folder;                            // exists; holds none of the files
  std::string name = "model";                    // of the files, before ".safetensors"
  Bytes shard_bytes_max = kShardBytesMax;        // of the tensors in a file, unless one is larger
  StoredMetadata metadata = {{"format", "pt"}};  // Transformers refuses files without
};

// Fills shards in the order of `tensors`, each of them as full as it goes; within a shard the order
// is that of the reference implementation. All is synced. Errors: kInvalidArgument for a name that
// is there twice or too long, or a bad shape; those of `source` and of the file system, after which
// the folder is worth nothing.
absl::Status WriteSafetensors(const SafetensorsWriting& writing,
                              std::span<const TensorToStore> tensors, TensorSource source);

}  // namespace gantry

#endif  // GANTRY_TRAINER_SAFETENSORS_WRITER_H_
