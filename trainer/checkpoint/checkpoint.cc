#include "trainer/checkpoint/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "chunk/block.h"
#include "chunk/chunk_layout.h"
#include "chunk/optimizer_states.h"
#include "gemini/parameter_store.h"
#include "trainer/checkpoint/checkpoint_directory.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/state_file.h"

namespace gantry {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += StrCat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

// The store's tensor that `tensor` belongs to.
absl::StatusOr<TensorId> MatchTensor(const ChunkLayout& layout, const TensorEntry& tensor) {
  const absl::StatusOr<TensorId> id = layout.Find(tensor.name);
  if (!id.ok() || layout.tensor(*id).name != tensor.name) {
    return InvalidArgument("the model has no tensor '", tensor.name, "'");
  }
  const TensorSpec& spec = layout.tensor(*id);
  if (spec.shape != tensor.shape) {
    return InvalidArgument("tensor '", tensor.name, "' is ", ShapeText(tensor.shape), " there and ",
                           ShapeText(spec.shape), " in the model");
  }
  if (spec.dtype != tensor.dtype) {
    return InvalidArgument("tensor '", tensor.name, "' is ", tensor.dtype, " there and ",
                           spec.dtype, " in the model");
  }
  if (tensor.trainability == Trainability::kFrozen &&
      spec.trainability == Trainability::kTrainable) {
    return InvalidArgument("tensor '", tensor.name, "' is frozen there and trained in the model");
  }
  return *id;
}

// Rounds master values to the parameter's type.
std::vector<std::byte> Round(std::span<const std::byte> master, DType dtype) {
  const size_t count = master.size() / sizeof(float);
  std::vector<std::byte> rounded(count * static_cast<size_t>(SizeOf(dtype)));
  for (size_t i = 0; i < count; ++i) {
    float value = 0.0f;
    std::memcpy(&value, master.data() + i * sizeof value, sizeof value);
    const uint16_t bits = dtype == DType::kBF16 ? FloatToBF16Bits(value) : FloatToF16Bits(value);
    std::memcpy(rounded.data() + i * sizeof bits, &bits, sizeof bits);
  }
  return rounded;
}

// Writes one saved state to the store's tensor, which may be frozen.
absl::Status WritePiece(ParameterStore& store, TensorId id, StateKind kind, int64_t first,
                        std::span<const std::byte> piece) {
  const TensorSpec& spec = store.layout().tensor(id);
  if (spec.trainability == Trainability::kTrainable || kind == StateKind::kParameter) {
    return store.WriteState(kind, id, first, piece);
  }
  if (kind != StateKind::kMaster) return absl::OkStatus();
  return store.WriteState(StateKind::kParameter, id, first, Round(piece, spec.dtype));
}

absl::Status Annotate(const absl::Status& status, const std::string& what) {
  return MakeStatus(status.code(), what, FromAbsl(status.message()));
}

bool Exists(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0;
}

// Where DIR/best, the file, is meant: DIR.
std::optional<std::string> DirectoryOfBest(const std::string& path) {
  const std::filesystem::path file(path);
  struct stat info{};
  if (file.filename() != kBestFile || stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return std::nullopt;
  }
  return file.has_parent_path() ? file.parent_path().string() : ".";
}

// The checkpoint that `path` means.
absl::StatusOr<std::string> Resolve(FileCalls& files, const std::string& path) {
  if (Exists(StrCat(path, "/", kManifestFile))) return path;
  if (!Exists(path)) return NotFound("no checkpoint at '", path, "': there is no such directory");
  if (const std::optional<std::string> directory = DirectoryOfBest(path)) {
    GANTRY_ASSIGN_OR_RETURN(const std::string name, BestCheckpoint(files, *directory));
    if (!name.empty()) return StrCat(*directory, "/", name);
    return NotFound("no checkpoint at '", path, "': the one it names is gone");
  }
  GANTRY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListCheckpoints(files, path));
  if (names.empty()) {
    return NotFound("no checkpoint in '", path, "': neither ", kManifestFile,
                    " nor a step-... directory is there");
  }
  return StrCat(path, "/", names.front());
}

constexpr char kAdvice[] = "; name an older checkpoint";

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(FileCalls* files, const std::string& path) {
  GANTRY_ASSIGN_OR_RETURN(const std::string directory, Resolve(*files, path));
  const std::string manifest_path = StrCat(directory, "/", kManifestFile);
  const absl::StatusOr<std::string> text =
      ReadFileToString(*files, manifest_path, kManifestBytesMax);
  if (!text.ok()) {
    return Annotate(text.status(), StrCat("cannot read checkpoint '", directory, "': "));
  }
  absl::StatusOr<CheckpointManifest> manifest = ParseManifest(*text);
  if (!manifest.ok()) {
    return MakeStatus(manifest.status().code(), "checkpoint manifest '", manifest_path,
                      "' cannot be used: ", FromAbsl(manifest.status().message()), kAdvice);
  }
  absl::StatusOr<StateFileReader> state =
      StateFileReader::Open(files, StrCat(directory, "/", kStateFile), manifest->state_bytes());
  if (!state.ok()) {
    return MakeStatus(state.status().code(), "checkpoint '", directory,
                      "' cannot be used: ", FromAbsl(state.status().message()), kAdvice);
  }
  return Checkpoint(directory, *std::move(manifest), *std::move(state));
}

absl::Status Checkpoint::Verify() const {
  for (const TensorEntry& tensor : manifest_.tensors) {
    for (const StateEntry& state : tensor.states) {
      GANTRY_RETURN_IF_ERROR(ReadState(
          tensor, state, [](int64_t, std::span<const std::byte>) { return absl::OkStatus(); }));
    }
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::ReadState(const TensorEntry& tensor, const StateEntry& state,
                                   PieceSink sink) const {
  const int64_t element_bytes = SizeOf(SavedDType(state.kind, tensor.dtype));
  std::vector<std::byte> buffer(static_cast<size_t>(
      std::min(kStatePieceBytes.count() / element_bytes * element_bytes, state.bytes)));
  Hasher hasher;
  for (int64_t done = 0; done < state.bytes;) {
    const int64_t bytes = std::min<int64_t>(std::ssize(buffer), state.bytes - done);
    const auto piece = std::span(buffer).first(static_cast<size_t>(bytes));
    GANTRY_RETURN_IF_ERROR(state_.ReadAt(state.offset + done, piece));
    hasher.Update(std::span<const std::byte>(piece));
    GANTRY_RETURN_IF_ERROR(sink(done / element_bytes, piece));
    done += bytes;
  }
  if (hasher.HexDigest() == state.checksum) return absl::OkStatus();
  return DataLoss("checkpoint '", path_, "' is damaged: the checksum of the ", Name(state.kind),
                  " of '", tensor.name, "' does not fit", kAdvice);
}

absl::Status Checkpoint::ReadParameter(std::string_view tensor, int64_t first,
                                       std::span<float> values) const {
  const auto entry = std::ranges::find(manifest_.tensors, tensor, &TensorEntry::name);
  if (entry == manifest_.tensors.end()) {
    return NotFound("checkpoint '", path_, "' has no tensor '", tensor, "'");
  }
  if (first < 0 || std::ssize(values) > entry->elements() - first) {
    return InvalidArgument("elements ", first, " to ", first + std::ssize(values), " of '", tensor,
                           "', which has ", entry->elements());
  }
  const StateEntry& state = entry->states.front();  // the master, or what is its own
  const DType dtype = SavedDType(state.kind, entry->dtype);
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(SizeOf(dtype)));
  GANTRY_RETURN_IF_ERROR(state_.ReadAt(state.offset + first * SizeOf(dtype), bytes));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = LoadElement(dtype, bytes.data(), static_cast<int64_t>(i));
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::CheckModel(const ParameterStore& store) const {
  const ChunkLayout& layout = store.layout();
  bool trains = false;
  for (const TensorEntry& tensor : manifest_.tensors) {
    const absl::StatusOr<TensorId> id = MatchTensor(layout, tensor);
    if (!id.ok()) {
      return Annotate(id.status(), StrCat("checkpoint '", path_, "' is from another model: "));
    }
    trains = trains || layout.tensor(*id).trainability == Trainability::kTrainable;
  }
  if (trains && manifest_.optimizer != layout.optimizer()) {
    return InvalidArgument("checkpoint '", path_, "' holds the states of ", manifest_.optimizer,
                           ", not of ", layout.optimizer(),
                           ": go on with the same optimizer, or start a new run");
  }
  const auto count = static_cast<int64_t>(manifest_.tensors.size());
  if (count == layout.tensor_count()) return absl::OkStatus();
  return InvalidArgument("checkpoint '", path_, "' is from another model: it has ", count,
                         " tensors, the model ", layout.tensor_count());
}

absl::Status Checkpoint::Restore(ParameterStore& store) const {
  GANTRY_RETURN_IF_ERROR(CheckModel(store));
  GANTRY_RETURN_IF_ERROR(Verify());
  for (const TensorEntry& tensor : manifest_.tensors) {
    GANTRY_ASSIGN_OR_RETURN(const TensorId id, MatchTensor(store.layout(), tensor));
    for (const StateEntry& state : tensor.states) {
      GANTRY_RETURN_IF_ERROR(
          ReadState(tensor, state, [&](int64_t first, std::span<const std::byte> bytes) {
            return WritePiece(store, id, state.kind, first, bytes);
          }));
    }
  }
  return absl::OkStatus();
}

}  // namespace gantry
