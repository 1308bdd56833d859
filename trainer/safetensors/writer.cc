#include "trainer/safetensors/writer.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/safetensors/shard_index.h"

namespace gantry {
namespace {

// Indices of the tensors of one file, in its order.
using Shard = std::vector<size_t>;

struct Sized {
  std::vector<int64_t> bytes;  // of each tensor
  int64_t total = 0;
};

absl::StatusOr<Sized> Measure(std::span<const TensorToStore> tensors) {
  Sized sized;
  std::set<std::string_view> names;
  for (const TensorToStore& tensor : tensors) {
    if (tensor.name.size() > kStoredNameBytesMax) {
      return InvalidArgument("a tensor's name has ", tensor.name.size(), " bytes; the most is ",
                             kStoredNameBytesMax);
    }
    if (!names.insert(tensor.name).second) {
      return InvalidArgument("tensor ", JsonQuoted(tensor.name), " would be stored twice");
    }
    const absl::StatusOr<int64_t> bytes = StoredBytes(tensor.dtype, tensor.shape);
    if (!bytes.ok() || __builtin_add_overflow(sized.total, *bytes, &sized.total)) {
      return InvalidArgument(
          "tensor ", JsonQuoted(tensor.name), ": ",
          bytes.ok() ? "the model is too large for a file" : FromAbsl(bytes.status().message()));
    }
    sized.bytes.push_back(*bytes);
  }
  return sized;
}

std::vector<Shard> Divide(std::span<const TensorToStore> tensors, const Sized& sized,
                          int64_t bytes_max) {
  std::vector<Shard> shards(1);
  int64_t filled = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    // The difference, as the sum may overflow.
    if (!shards.back().empty() && sized.bytes[i] > bytes_max - filled) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(i);
    filled += sized.bytes[i];
  }
  for (Shard& shard : shards) {
    std::ranges::sort(shard, [&](size_t a, size_t b) {
      return std::pair(tensors[b].dtype, std::string_view(tensors[a].name)) <
             std::pair(tensors[a].dtype, std::string_view(tensors[b].name));
    });
  }
  return shards;
}

std::string FileName(std::string_view name, size_t shard, size_t count) {
  if (count == 1) return StrCat(name, ".safetensors");
  std::array<char, 64> numbers{};
  std::snprintf(numbers.data(), numbers.size(), "-%05zu-of-%05zu", shard + 1, count);
  return StrCat(name, numbers.data(), ".safetensors");
}

// One file that is appended to.
class ShardFile {
 public:
  static absl::StatusOr<ShardFile> Create(FileCalls* files, const std::string& path) {
    GANTRY_ASSIGN_OR_RETURN(FileDescriptor file,
                            OpenFile(*files, path, O_WRONLY | O_CREAT | O_EXCL, 0666));
    return ShardFile(files, std::move(file), path);
  }
  absl::Status Append(std::span<const std::byte> bytes) {
    GANTRY_RETURN_IF_ERROR(WriteAll(*files_, {file_.get(), path_}, offset_, bytes));
    offset_ += std::ssize(bytes);
    return absl::OkStatus();
  }
  absl::Status Finish() {
    GANTRY_RETURN_IF_ERROR(SyncFile(*files_, {file_.get(), path_}));
    return file_.Close();
  }

 private:
  ShardFile(FileCalls* files, FileDescriptor file, std::string path)
      : files_(files), file_(std::move(file)), path_(std::move(path)) {}

  FileCalls* files_;
  FileDescriptor file_;
  std::string path_;
  int64_t offset_ = 0;
};

absl::StatusOr<std::string> HeaderOf(const Shard& shard, std::span<const TensorToStore> tensors,
                                     const Sized& sized, const StoredMetadata& metadata) {
  SafetensorsHeader header{.tensors = {}, .metadata = metadata};
  int64_t offset = 0;
  for (const size_t i : shard) {
    header.tensors.push_back({.name = tensors[i].name,
                              .dtype = tensors[i].dtype,
                              .shape = tensors[i].shape,
                              .offset = offset,
                              .bytes = sized.bytes[i]});
    offset += sized.bytes[i];
  }
  return SerializeSafetensorsHeader(header);
}

absl::Status WriteTensor(size_t tensor, int64_t bytes, TensorSource source,
                         std::span<std::byte> buffer, ShardFile& file) {
  for (int64_t done = 0; done < bytes;) {
    const auto piece =
        buffer.first(static_cast<size_t>(std::min<int64_t>(std::ssize(buffer), bytes - done)));
    GANTRY_RETURN_IF_ERROR(source(tensor, done, piece));
    GANTRY_RETURN_IF_ERROR(file.Append(piece));
    done += std::ssize(piece);
  }
  return absl::OkStatus();
}

absl::Status WriteIndex(const SafetensorsWriting& writing, const ShardIndex& index,
                        int64_t total_bytes) {
  const std::string text = SerializeShardIndex(index, total_bytes);
  GANTRY_ASSIGN_OR_RETURN(ShardFile file,
                          ShardFile::Create(writing.files, StrCat(writing.folder, "/", writing.name,
                                                                  ".safetensors.index.json")));
  GANTRY_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(text))));
  return file.Finish();
}

}  // namespace

absl::Status WriteSafetensors(const SafetensorsWriting& writing,
                              std::span<const TensorToStore> tensors, TensorSource source) {
  if (std::ssize(tensors) > kStoredTensorsMax) {
    return InvalidArgument("there are ", tensors.size(), " tensors; the most is ",
                           kStoredTensorsMax);
  }
  GANTRY_ASSIGN_OR_RETURN(const Sized sized, Measure(tensors));
  const std::vector<Shard> shards = Divide(tensors, sized, writing.shard_bytes_max.count());
  std::vector<std::byte> buffer(static_cast<size_t>(kSafetensorsPieceBytes.count()));
  ShardIndex index;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = FileName(writing.name, i, shards.size());
    GANTRY_ASSIGN_OR_RETURN(const std::string header,
                            HeaderOf(shards[i], tensors, sized, writing.metadata));
    GANTRY_ASSIGN_OR_RETURN(ShardFile file,
                            ShardFile::Create(writing.files, StrCat(writing.folder, "/", name)));
    GANTRY_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(header))));
    for (const size_t tensor : shards[i]) {
      GANTRY_RETURN_IF_ERROR(WriteTensor(tensor, sized.bytes[tensor], source, buffer, file));
      index.emplace(tensors[tensor].name, name);
    }
    GANTRY_RETURN_IF_ERROR(file.Finish());
  }
  if (shards.size() > 1) GANTRY_RETURN_IF_ERROR(WriteIndex(writing, index, sized.total));
  return SyncDirectory(*writing.files, writing.folder);
}

}  // namespace gantry
