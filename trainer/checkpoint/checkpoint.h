// A saved checkpoint, opened for reading.
//
//   GANTRY_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(&files, "runs/a"));
//   GANTRY_RETURN_IF_ERROR(checkpoint.Restore(*store));       // continue with position().step
//
// Whatever the file holds, memory stays bounded (kManifestBytesMax of text, kStatePieceBytes of
// state), and nothing is written to a store before every byte was compared with its checksum.
//
// Movable; thread-compatible. Holds the state file open, so removing the checkpoint meanwhile is
// harmless.
#ifndef GANTRY_TRAINER_CHECKPOINT_CHECKPOINT_H_
#define GANTRY_TRAINER_CHECKPOINT_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "gemini/parameter_store.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/state_file.h"

namespace gantry {

class Checkpoint {
 public:
  // `path` is a checkpoint, a directory of checkpoints, of which the newest is opened, or the file
  // `best` in one, which names another. `files` outlives the object. Errors:
  // kNotFound where there is none; kDataLoss for one that is damaged or cut short, with which file
  // and what to do; kFailedPrecondition for an unknown version.
  static absl::StatusOr<Checkpoint> Open(FileCalls* files, const std::string& path);

  const std::string& path() const { return path_; }
  const CheckpointManifest& manifest() const { return manifest_; }

  // Compares every byte of the states with its checksum. Errors: kDataLoss naming the tensor.
  absl::Status Verify() const;

  // Fills `values` with elements [first, first + n) of a tensor, as precise as they were saved; of
  // a tied tensor by the name it was registered under. Compares nothing with a checksum: Verify
  // does. Errors: kNotFound; kInvalidArgument for elements that it does not have; those of reading.
  absl::Status ReadParameter(std::string_view tensor, int64_t first, std::span<float> values) const;

  // Whether the model of a sealed store is the one that was saved, and what is trained of it is
  // trained by the same optimizer, whatever the format of its states. A frozen tensor may have been
  // trainable when it was saved: its value suffices. Errors: kInvalidArgument saying what differs.
  absl::Status CheckModel(const ParameterStore& store) const;

  // CheckModel, Verify, then writes all states. REQUIRES: a sealed store, between steps.
  // Errors: those of CheckModel and Verify, with the store untouched; those of reading once more,
  // which compares once more, and of the store, after which it holds no run's states.
  absl::Status Restore(ParameterStore& store) const;

 private:
  Checkpoint(std::string path, CheckpointManifest manifest, StateFileReader state)
      : path_(std::move(path)), manifest_(std::move(manifest)), state_(std::move(state)) {}

  // First element and bytes.
  using PieceSink = absl::FunctionRef<absl::Status(int64_t, std::span<const std::byte>)>;
  // Hands on a state's bytes piece by piece, and says at the end whether they fit the checksum.
  absl::Status ReadState(const TensorEntry& tensor, const StateEntry& state, PieceSink sink) const;

  std::string path_;
  CheckpointManifest manifest_;
  StateFileReader state_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHECKPOINT_CHECKPOINT_H_
