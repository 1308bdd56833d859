// Reads the tensors of a safetensors file, or of a folder that holds a model in one file or in
// shards.
//
//   GANTRY_ASSIGN_OR_RETURN(const SafetensorsReader reader, SafetensorsReader::Open(&files, path));
//   for (const StoredTensor& tensor : reader.tensors()) {
//     GANTRY_RETURN_IF_ERROR(reader.ReadInto(tensor, 0, buffer));
//   }
//
// Bytes are read, never mapped: a file that is cut short meanwhile is an error, not a signal. Each
// read is compared with the size and time of change that the file had when it was opened. A file
// that is replaced under its name stays what it was.
//
// Files somebody else made are taken apart as header.h and shard_index.h say, and nothing outside
// the folder is opened because a file names it. Symbolic links are followed: the folders of Hugging
// Face's cache consist of them.
//
// Movable; thread-safe: reads may run at the same time. Holds its files open.
#ifndef GANTRY_TRAINER_SAFETENSORS_READER_H_
#define GANTRY_TRAINER_SAFETENSORS_READER_H_

#include <sys/stat.h>
#include <time.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "trainer/safetensors/header.h"

namespace gantry {

inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kModelIndexFile[] = "model.safetensors.index.json";

class SafetensorsReader {
 public:
  // `path` is a file, or a folder with model.safetensors or, without that,
  // model.safetensors.index.json. `files` outlives the object. Errors: kNotFound; kInvalidArgument
  // for files that are no such thing or do not fit together: a tensor that the index names and its
  // file lacks, or the other way round; all with the path; those of reading.
  static absl::StatusOr<SafetensorsReader> Open(FileCalls* files, const std::string& path);

  // By file, then by offset: the order in which they are best read.
  std::span<const StoredTensor> tensors() const { return tensors_; }
  // Null when there is none of that name.
  const StoredTensor* Find(std::string_view name) const;
  // Of the first file.
  const StoredMetadata& metadata() const { return files_.front().metadata; }

  size_t file_count() const { return files_.size(); }
  // REQUIRES: file < file_count().
  const std::string& path_of(size_t file) const { return files_[file].path; }
  int64_t data_bytes() const;  // of all tensors

  // Fills `bytes` from byte `first_byte` of a tensor of this reader on. Blocks. REQUIRES: they are
  // within the tensor. Errors: kDataLoss when the file is not what was opened any more, else as
  // ErrnoStatus.
  absl::Status ReadInto(const StoredTensor& tensor, int64_t first_byte,
                        std::span<std::byte> bytes) const;
  // Tells the system that these bytes are wanted soon; it may read them meanwhile. Does not block.
  void ReadAhead(const StoredTensor& tensor, int64_t first_byte, int64_t bytes) const;

 private:
  struct File {
    std::string path;
    FileDescriptor descriptor;
    int64_t data_begin;  // of the data block
    int64_t bytes;       // of the file
    struct timespec changed;
    StoredMetadata metadata;
  };

  explicit SafetensorsReader(FileCalls* files) : calls_(files) {}

  absl::Status OpenShards(const std::string& folder);
  absl::Status AddFile(const std::string& path);
  absl::Status CheckUnchanged(const File& file) const;
  void SortNames();

  FileCalls* calls_;
  std::vector<File> files_;
  std::vector<StoredTensor> tensors_;
  std::vector<size_t> by_name_;  // indices of tensors_
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_SAFETENSORS_READER_H_
