#include "trainer/checkpoint/checkpoint_directory.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "chunk/block.h"
#include "chunk/chunk_layout.h"
#include "gemini/parameter_store.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/state_file.h"

namespace gantry {
namespace {

constexpr char kTemporaryName[] = ".writing";
constexpr char kRemovingName[] = ".removing";
constexpr char kListName[] = "latest";
constexpr char kLockName[] = ".lock";
constexpr std::string_view kNamePrefix = "step-";
constexpr int kStepDigits = 8;
constexpr Bytes kListBytesMax = 1_MiB;

// A step, and which checkpoint of that step it is: "step-00000010", "step-00000010.1".
struct NameParts {
  int64_t step;
  int64_t repetition;
  constexpr auto operator<=>(const NameParts&) const = default;
};

std::string MakeName(NameParts parts) {
  std::string digits = std::to_string(parts.step);
  digits.insert(
      0,
      static_cast<size_t>(std::max<int64_t>(0, kStepDigits - static_cast<int64_t>(digits.size()))),
      '0');
  std::string name = StrCat(kNamePrefix, digits);
  if (parts.repetition > 0) name += StrCat(".", parts.repetition);
  return name;
}

// Nothing unless MakeName gives exactly this name.
std::optional<NameParts> ParseName(std::string_view name) {
  if (!name.starts_with(kNamePrefix)) return std::nullopt;
  const char* const end = name.data() + name.size();
  NameParts parts{.step = 0, .repetition = 0};
  auto result = std::from_chars(name.data() + kNamePrefix.size(), end, parts.step);
  if (result.ec == std::errc() && result.ptr != end && *result.ptr == '.') {
    result = std::from_chars(result.ptr + 1, end, parts.repetition);
  }
  if (result.ec != std::errc() || parts.step < 0 || MakeName(parts) != name) return std::nullopt;
  return parts;
}

// The names in `latest`; empty without the file.
absl::StatusOr<std::vector<std::string>> ReadList(FileCalls& files, const std::string& directory) {
  const std::string path = StrCat(directory, "/", kListName);
  absl::StatusOr<std::string> text = ReadFileToString(files, path, kListBytesMax);
  if (text.status().code() == absl::StatusCode::kNotFound) return std::vector<std::string>();
  GANTRY_RETURN_IF_ERROR(text.status());
  std::vector<std::string> names;
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    std::string name = text->substr(begin, end - begin);
    if (!ParseName(name).has_value()) {
      return DataLoss(path,
                      " is damaged: it lists no checkpoints but other text; delete it to go on "
                      "from the checkpoint with the highest step");
    }
    names.push_back(std::move(name));
    begin = end + 1;
  }
  return names;
}

absl::StatusOr<std::vector<std::string>> EntriesOf(FileCalls& files, const std::string& directory) {
  GANTRY_ASSIGN_OR_RETURN(const FileDescriptor opened,
                          OpenFile(files, directory, O_RDONLY | O_DIRECTORY, 0));
  return ListNames(files, {opened.get(), directory});
}

// The checkpoints that are there, by descending step.
absl::StatusOr<std::vector<std::string>> ScanDirectory(FileCalls& files,
                                                       const std::string& directory) {
  GANTRY_ASSIGN_OR_RETURN(const std::vector<std::string> entries, EntriesOf(files, directory));
  std::vector<NameParts> found;
  for (const std::string& entry : entries) {
    const std::optional<NameParts> parts = ParseName(entry);
    if (parts.has_value()) found.push_back(*parts);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  names.reserve(found.size());
  for (const NameParts& parts : found) names.push_back(MakeName(parts));
  return names;
}

absl::StatusOr<FileDescriptor> LockDirectory(FileCalls& files, const std::string& path) {
  // A file of its own: the folder itself may be locked by whoever spills into it.
  GANTRY_ASSIGN_OR_RETURN(FileDescriptor lock, OpenFile(files, StrCat(path, "/", kLockName),
                                                        O_RDWR | O_CREAT | O_NOFOLLOW, 0666));
  while (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return Unavailable("another run writes its checkpoints to ", path,
                         ": wait for it or choose another directory");
    }
    if (errno != EINTR) return ErrnoStatus(errno, StrCat("lock ", path));
  }
  return lock;
}

absl::Status RemoveIfThere(FileCalls& files, const std::string& path) {
  const absl::Status status = RemoveTree(files, path);
  return status.code() == absl::StatusCode::kNotFound ? absl::OkStatus() : status;
}

// Temporary files of WriteFileAtomically.
bool IsTemporaryFile(std::string_view name) {
  return name.starts_with(".gantry-") && name.ends_with(".tmp");
}

// What a crash left half written or half removed. REQUIRES: the directory's lock.
absl::Status RemoveLeftovers(FileCalls& files, const std::string& directory) {
  GANTRY_ASSIGN_OR_RETURN(const std::vector<std::string> entries, EntriesOf(files, directory));
  for (const std::string& name : entries) {
    if (!IsTemporaryFile(name)) continue;
    const std::string path = StrCat(directory, "/", name);
    const int error = files.Unlink(AT_FDCWD, path, 0);
    if (error != 0 && error != -ENOENT) return ErrnoStatus(-error, StrCat("remove ", path));
  }
  GANTRY_RETURN_IF_ERROR(RemoveIfThere(files, StrCat(directory, "/", kTemporaryName)));
  return RemoveIfThere(files, StrCat(directory, "/", kRemovingName));
}

// Appends one state of one tensor to the file and describes it.
absl::StatusOr<StateEntry> WriteOneState(ParameterStore& store, TensorId id, StateKind kind,
                                         std::span<std::byte> buffer, StateFileWriter& file) {
  const TensorSpec& spec = store.layout().tensor(id);
  const int64_t element_bytes = SizeOf(SavedDType(kind, spec.dtype));
  const int64_t elements = store.layout().StateElements(kind, id);
  const int64_t per_piece = static_cast<int64_t>(buffer.size()) / element_bytes;
  StateEntry entry{
      .kind = kind, .offset = file.bytes(), .bytes = elements * element_bytes, .checksum = {}};
  Hasher hasher;
  for (int64_t first = 0; first < elements; first += per_piece) {
    const int64_t count = std::min(per_piece, elements - first);
    const auto piece = buffer.first(static_cast<size_t>(count * element_bytes));
    GANTRY_RETURN_IF_ERROR(store.ReadState(kind, id, first, piece));
    hasher.Update(std::span<const std::byte>(piece));
    GANTRY_RETURN_IF_ERROR(file.Append(piece));
  }
  entry.checksum = hasher.HexDigest();
  return entry;
}

absl::Status WriteStates(FileCalls* files, ParameterStore& store, const std::string& path,
                         std::vector<TensorEntry>& tensors) {
  GANTRY_ASSIGN_OR_RETURN(StateFileWriter file, StateFileWriter::Create(files, path));
  std::vector<std::byte> buffer(static_cast<size_t>(kStatePieceBytes.count()));
  for (int64_t i = 0; i < store.layout().tensor_count(); ++i) {
    const TensorId id(i);
    const TensorSpec& spec = store.layout().tensor(id);
    TensorEntry tensor{.name = spec.name,
                       .shape = spec.shape,
                       .dtype = spec.dtype,
                       .trainability = spec.trainability,
                       .states = {}};
    for (const StateKind kind :
         SavedStates(spec.dtype, spec.trainability, store.layout().optimizer())) {
      GANTRY_ASSIGN_OR_RETURN(StateEntry entry, WriteOneState(store, id, kind, buffer, file));
      tensor.states.push_back(std::move(entry));
    }
    tensors.push_back(std::move(tensor));
  }
  return file.Finish();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListCheckpoints(FileCalls& files,
                                                         const std::string& directory) {
  GANTRY_ASSIGN_OR_RETURN(std::vector<std::string> listed, ReadList(files, directory));
  GANTRY_ASSIGN_OR_RETURN(const std::vector<std::string> there, ScanDirectory(files, directory));
  // A listed one may be gone: someone deleted it, or a crash came while it was removed.
  std::erase_if(listed, [&](const std::string& name) {
    return std::find(there.begin(), there.end(), name) == there.end();
  });
  const std::vector<std::string> in_order = listed;
  for (const std::string& name : there) {
    if (std::find(in_order.begin(), in_order.end(), name) == in_order.end()) {
      listed.push_back(name);
    }
  }
  return listed;
}

absl::StatusOr<std::string> BestCheckpoint(FileCalls& files, const std::string& directory) {
  const std::string path = StrCat(directory, "/", kBestFile);
  absl::StatusOr<std::string> name = ReadFileToString(files, path, kListBytesMax);
  if (name.status().code() == absl::StatusCode::kNotFound) return std::string();
  GANTRY_RETURN_IF_ERROR(name.status());
  if (name->ends_with('\n')) name->pop_back();
  if (!ParseName(*name).has_value()) {
    return DataLoss(path, " is damaged: it names no checkpoint; delete it to go on without a best");
  }
  GANTRY_ASSIGN_OR_RETURN(const std::vector<std::string> there, ScanDirectory(files, directory));
  if (std::find(there.begin(), there.end(), *name) == there.end()) return std::string();
  return *std::move(name);
}

absl::StatusOr<std::unique_ptr<CheckpointDirectory>> CheckpointDirectory::Open(Options options) {
  if (options.keep < 0) return InvalidArgument("cannot keep ", options.keep, " checkpoints");
  FileCalls& files = *options.files;
  GANTRY_RETURN_IF_ERROR(MakeDirectories(files, options.path));
  GANTRY_ASSIGN_OR_RETURN(FileDescriptor lock, LockDirectory(files, options.path));
  GANTRY_RETURN_IF_ERROR(RemoveLeftovers(files, options.path));
  GANTRY_ASSIGN_OR_RETURN(std::vector<std::string> names, ListCheckpoints(files, options.path));
  GANTRY_ASSIGN_OR_RETURN(std::string best, BestCheckpoint(files, options.path));
  return std::unique_ptr<CheckpointDirectory>(new CheckpointDirectory(
      std::move(options), std::move(lock), std::move(names), std::move(best)));
}

// A run that went back to an earlier checkpoint comes to the same step again: the one that is there
// stays until it is surplus.
std::string CheckpointDirectory::FreeName(int64_t step) const {
  NameParts parts{.step = step, .repetition = 0};
  while (std::find(names_.begin(), names_.end(), MakeName(parts)) != names_.end()) {
    ++parts.repetition;
  }
  return MakeName(parts);
}

absl::StatusOr<std::string> CheckpointDirectory::Save(ParameterStore& store,
                                                      const RunPosition& position,
                                                      const RunSettings& settings) {
  GANTRY_RETURN_IF_ERROR(RemoveLeftovers(*options_.files, options_.path));
  absl::Status status = WriteTemporary(store, {.position = position,
                                               .settings = settings,
                                               .optimizer = store.layout().optimizer(),
                                               .tensors = {}});
  const std::string name = FreeName(position.step);
  if (status.ok()) status = Publish(name);
  if (!status.ok()) {
    RemoveIfThere(*options_.files, PathOf(kTemporaryName))
        .IgnoreError();  // the first error is the one to tell
    return status;
  }
  GANTRY_RETURN_IF_ERROR(RemoveSurplus());
  return PathOf(name);
}

absl::Status CheckpointDirectory::WriteTemporary(ParameterStore& store,
                                                 CheckpointManifest manifest) {
  const std::string directory = PathOf(kTemporaryName);
  GANTRY_RETURN_IF_ERROR(MakeDirectory(*options_.files, directory, 0777));
  GANTRY_RETURN_IF_ERROR(
      WriteStates(options_.files, store, StrCat(directory, "/", kStateFile), manifest.tensors));
  GANTRY_ASSIGN_OR_RETURN(const std::string text, SerializeManifest(manifest));
  GANTRY_ASSIGN_OR_RETURN(
      StateFileWriter file,
      StateFileWriter::Create(options_.files, StrCat(directory, "/", kManifestFile)));
  GANTRY_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(text))));
  GANTRY_RETURN_IF_ERROR(file.Finish());
  return SyncDirectory(*options_.files, directory);
}

// The list first: readers pass over names that are not there, so whenever a crash comes, the newest
// whole checkpoint is the first that they find.
absl::Status CheckpointDirectory::Publish(const std::string& name) {
  std::string list = name + "\n";
  const size_t others = options_.keep == 0 ? names_.size() : static_cast<size_t>(options_.keep - 1);
  for (size_t i = 0; i < std::min(others, names_.size()); ++i) list += names_[i] + "\n";
  GANTRY_RETURN_IF_ERROR(
      WriteFileAtomically(*options_.files, PathOf(kListName), std::as_bytes(std::span(list))));
  const int error =
      options_.files->Rename(AT_FDCWD, PathOf(kTemporaryName), AT_FDCWD, PathOf(name));
  if (error != 0) return ErrnoStatus(-error, StrCat("rename a checkpoint to ", PathOf(name)));
  names_.insert(names_.begin(), name);  // whatever fails from here on, it is there
  return SyncDirectory(*options_.files, options_.path);
}

absl::Status CheckpointDirectory::MarkNewestBest() {
  GANTRY_CHECK(!names_.empty());
  if (best_ == names_.front()) return absl::OkStatus();
  const std::string line = names_.front() + "\n";
  GANTRY_RETURN_IF_ERROR(
      WriteFileAtomically(*options_.files, PathOf(kBestFile), std::as_bytes(std::span(line))));
  best_ = names_.front();
  return RemoveSurplus();
}

absl::Status CheckpointDirectory::RemoveSurplus() {
  if (options_.keep == 0) return absl::OkStatus();
  for (size_t i = names_.size(); i > static_cast<size_t>(options_.keep); --i) {
    const std::string& name = names_[i - 1];
    if (name == best_) continue;
    // Renamed first, so that a crash leaves no half checkpoint under a checkpoint's name.
    const std::string path = PathOf(name);
    const std::string removing = PathOf(kRemovingName);
    const int error = options_.files->Rename(AT_FDCWD, path, AT_FDCWD, removing);
    if (error != 0 && error != -ENOENT) {
      return ErrnoStatus(-error, StrCat("rename surplus checkpoint ", path));
    }
    names_.erase(names_.begin() + static_cast<ptrdiff_t>(i - 1));
    GANTRY_RETURN_IF_ERROR(RemoveIfThere(*options_.files, removing));
  }
  return absl::OkStatus();
}

}  // namespace gantry
