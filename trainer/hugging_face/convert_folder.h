// A Hugging Face model folder as another one: in another type, in shards of another size, with an
// adapter merged into its weights. Of any architecture: nothing is known of the model but the names
// of its tensors. In pieces, so that models larger than memory pass.
//
// Stateless function; blocks.
#ifndef GANTRY_TRAINER_HUGGING_FACE_CONVERT_FOLDER_H_
#define GANTRY_TRAINER_HUGGING_FACE_CONVERT_FOLDER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "trainer/safetensors/writer.h"

namespace gantry {

struct FolderConversion {
  FileCalls* files;
  std::string from;   // a model folder
  std::string place;  // of the new folder; nothing is there, or an empty folder
  // Of the tensors that are F32, BF16 or F16; others stay as they are. None: each keeps its own.
  std::optional<DType> dtype = std::nullopt;
  Bytes shard_bytes_max = kShardBytesMax;
  std::string adapter = {};  // a PEFT folder to merge; empty: none
};

struct ConvertedFolder {
  int64_t tensors;
  int64_t bytes;   // of the tensors
  int64_t merged;  // linear maps that the adapter changed
};

// Merging adds scale x B A in float and rounds once. Errors: those of opening the folder and the
// adapter; kInvalidArgument for an adapter of maps that the model does not have, or of another
// shape; kAlreadyExists; those of writing, after which nothing is at the place.
absl::StatusOr<ConvertedFolder> ConvertFolder(const FolderConversion& conversion);

}  // namespace gantry

#endif  // GANTRY_TRAINER_HUGGING_FACE_CONVERT_FOLDER_H_
