#include "trainer/safetensors/reader.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <numeric>
#include <set>

#include "base/check.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/safetensors/shard_index.h"

namespace gantry {
namespace {

constexpr size_t kNamedMax = 3;  // tensors, in a message

absl::Status Annotate(const absl::Status& status, const std::string& path) {
  return MakeStatus(status.code(), path, ": ", FromAbsl(status.message()));
}

bool IsDirectory(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool Exists(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0;
}

bool operator==(const struct timespec& a, const struct timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

int64_t LittleEndian(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) {
    value = value << 8 | static_cast<uint64_t>(bytes[i - 1]);
  }
  // Beyond any length that is allowed, so that it need not be told apart.
  return value > static_cast<uint64_t>(INT64_MAX) ? INT64_MAX : static_cast<int64_t>(value);
}

// "'a', 'b', 'c' and 2 more".
std::string NamesText(const std::vector<std::string_view>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamedMax); ++i) {
    text += StrCat(i == 0 ? "" : ", ", JsonQuoted(names[i]));
  }
  if (names.size() > kNamedMax) text += StrCat(" and ", names.size() - kNamedMax, " more");
  return text;
}

// The length of the header of a file of `file_bytes`.
absl::StatusOr<int64_t> ReadHeaderLength(FileCalls& files, OpenedFile file, int64_t file_bytes) {
  if (file_bytes < kSafetensorsLengthBytes) {
    return InvalidArgument(file.path, " is no safetensors file: it has ", file_bytes, " bytes");
  }
  std::array<std::byte, kSafetensorsLengthBytes> prefix{};
  GANTRY_RETURN_IF_ERROR(ReadAll(files, file, 0, prefix));
  const int64_t length = LittleEndian(prefix);
  const int64_t most = std::min(kSafetensorsHeaderBytesMax, file_bytes - kSafetensorsLengthBytes);
  if (length <= most) return length;
  return InvalidArgument(file.path, " is no whole safetensors file: its header would have ", length,
                         " bytes, of ", most, " at most",
                         prefix[0] == std::byte{'v'} ? " (a Git LFS pointer?)" : "");
}

}  // namespace

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(FileCalls* files,
                                                          const std::string& path) {
  SafetensorsReader reader(files);
  if (!IsDirectory(path)) {
    GANTRY_RETURN_IF_ERROR(reader.AddFile(path));
  } else if (const std::string file = StrCat(path, "/", kModelFile); Exists(file)) {
    GANTRY_RETURN_IF_ERROR(reader.AddFile(file));
  } else if (Exists(StrCat(path, "/", kModelIndexFile))) {
    GANTRY_RETURN_IF_ERROR(reader.OpenShards(path));
  } else {
    return NotFound("no model in '", path, "': neither ", kModelFile, " nor ", kModelIndexFile,
                    " is there",
                    Exists(StrCat(path, "/pytorch_model.bin")) ||
                            Exists(StrCat(path, "/pytorch_model.bin.index.json"))
                        ? "; pytorch_model.bin is not read, as it may hold programs: save the "
                          "model as safetensors"
                        : "");
  }
  reader.SortNames();
  return reader;
}

absl::Status SafetensorsReader::OpenShards(const std::string& folder) {
  const std::string path = StrCat(folder, "/", kModelIndexFile);
  GANTRY_ASSIGN_OR_RETURN(const std::string text,
                          ReadFileToString(*calls_, path, kShardIndexBytesMax));
  absl::StatusOr<ShardIndex> index = ParseShardIndex(text);
  if (!index.ok()) return Annotate(index.status(), path);
  std::set<std::string_view> names;
  for (const auto& [tensor, file] : *index) names.insert(file);
  for (const std::string_view name : names) {
    const size_t first = tensors_.size();
    const absl::Status added = AddFile(StrCat(folder, "/", name));
    if (added.code() == absl::StatusCode::kNotFound) {
      return NotFound(path, " names ", name, ", which is not there: the model is not complete");
    }
    GANTRY_RETURN_IF_ERROR(added);
    for (size_t i = first; i < tensors_.size(); ++i) {
      const auto entry = index->find(tensors_[i].name);
      if (entry == index->end() || entry->second != name) {
        return InvalidArgument(folder, "/", name, " holds tensor ", JsonQuoted(tensors_[i].name),
                               ", which is not there according to ", kModelIndexFile);
      }
    }
  }
  if (tensors_.size() == index->size()) return absl::OkStatus();
  std::set<std::string_view> there;
  for (const StoredTensor& tensor : tensors_) there.insert(tensor.name);
  std::vector<std::string_view> missing;
  for (const auto& [tensor, file] : *index) {
    if (!there.contains(tensor)) missing.push_back(tensor);
  }
  return InvalidArgument(path, " names tensors that are not in their files: ", NamesText(missing));
}

absl::Status SafetensorsReader::AddFile(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for its other end.
  GANTRY_ASSIGN_OR_RETURN(FileDescriptor descriptor,
                          OpenFile(*calls_, path, O_RDONLY | O_NONBLOCK, 0));
  struct stat info{};
  if (fstat(descriptor.get(), &info) != 0) return ErrnoStatus(errno, StrCat("stat ", path));
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path, " is no regular file");
  const OpenedFile file{descriptor.get(), path};
  GANTRY_ASSIGN_OR_RETURN(const int64_t length, ReadHeaderLength(*calls_, file, info.st_size));
  std::string json(static_cast<size_t>(length), '\0');
  GANTRY_RETURN_IF_ERROR(
      ReadAll(*calls_, file, kSafetensorsLengthBytes, std::as_writable_bytes(std::span(json))));
  const int64_t data_begin = kSafetensorsLengthBytes + length;
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(json, info.st_size - data_begin);
  if (!header.ok()) return Annotate(header.status(), path);
  if (std::ssize(tensors_) + std::ssize(header->tensors) > kStoredTensorsMax) {
    return InvalidArgument(path, ": the files before it and this one have more than ",
                           kStoredTensorsMax, " tensors");
  }
  for (StoredTensor& tensor : header->tensors) {
    tensor.file = files_.size();
    tensors_.push_back(std::move(tensor));
  }
  files_.push_back({.path = path,
                    .descriptor = std::move(descriptor),
                    .data_begin = data_begin,
                    .bytes = info.st_size,
                    .changed = info.st_mtim,
                    .metadata = std::move(header->metadata)});
  return CheckUnchanged(files_.back());
}

void SafetensorsReader::SortNames() {
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::ranges::sort(by_name_, {}, [this](size_t i) { return std::string_view(tensors_[i].name); });
}

const StoredTensor* SafetensorsReader::Find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(
      by_name_, name, {}, [this](size_t i) { return std::string_view(tensors_[i].name); });
  if (found == by_name_.end() || tensors_[*found].name != name) return nullptr;
  return &tensors_[*found];
}

int64_t SafetensorsReader::data_bytes() const {
  int64_t bytes = 0;
  for (const StoredTensor& tensor : tensors_) bytes += tensor.bytes;
  return bytes;
}

absl::Status SafetensorsReader::CheckUnchanged(const File& file) const {
  struct stat info{};
  if (fstat(file.descriptor.get(), &info) != 0) {
    return ErrnoStatus(errno, StrCat("stat ", file.path));
  }
  if (info.st_size == file.bytes && info.st_mtim == file.changed) return absl::OkStatus();
  return DataLoss(file.path, " was changed while it was being read: it has ", info.st_size,
                  " bytes, and had ", file.bytes);
}

absl::Status SafetensorsReader::ReadInto(const StoredTensor& tensor, int64_t first_byte,
                                         std::span<std::byte> bytes) const {
  GANTRY_CHECK(tensor.file < files_.size() && first_byte >= 0 &&
               std::ssize(bytes) <= tensor.bytes - first_byte)
      << tensor.name << ": " << bytes.size() << " bytes from " << first_byte << " of "
      << tensor.bytes;
  const File& file = files_[tensor.file];
  GANTRY_RETURN_IF_ERROR(ReadAll(*calls_, {file.descriptor.get(), file.path},
                                 file.data_begin + tensor.offset + first_byte, bytes));
  return CheckUnchanged(file);
}

void SafetensorsReader::ReadAhead(const StoredTensor& tensor, int64_t first_byte,
                                  int64_t bytes) const {
  const File& file = files_[tensor.file];
  // Only advice: where the system does not take it, nothing is lost.
  (void)posix_fadvise(file.descriptor.get(), file.data_begin + tensor.offset + first_byte, bytes,
                      POSIX_FADV_WILLNEED);
}

}  // namespace gantry
