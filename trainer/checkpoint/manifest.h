// What a checkpoint says about itself: the step, the settings of the run, and per tensor and kind
// of state where the bytes lie in the state file and their checksum. The text form is JSON whose
// first member is the checksum of all that follows, so that any changed byte is noticed before
// anything is parsed; docs/formats/checkpoint.md describes it.
//
// Pure functions of text; nothing here opens a file.
#ifndef GANTRY_TRAINER_CHECKPOINT_MANIFEST_H_
#define GANTRY_TRAINER_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "chunk/block.h"
#include "chunk/chunk_layout.h"
#include "chunk/optimizer_states.h"

namespace gantry {

inline constexpr int64_t kCheckpointVersion = 1;
inline constexpr Bytes kManifestBytesMax = 16_MiB;

// The factor that the loss of f16 parameters carries, see trainer/booster/loss_scale.h.
struct LossScale {
  double scale;
  int64_t good_steps;  // since it last changed

  bool operator==(const LossScale&) const = default;
};

struct BestEvaluation {
  int64_t step;
  double loss;

  bool operator==(const BestEvaluation&) const = default;
};

// How far a run is, and what it must remember to go on as it would have.
struct RunPosition {
  int64_t step = 0;            // steps done
  int64_t sequences = 0;       // sequences of training data consumed
  int64_t updates = 0;         // steps done that were not skipped
  int64_t evaluated_step = 0;  // the newest evaluation was after this step; 0: there was none
  std::optional<LossScale> loss_scale = std::nullopt;  // none: not f16
  std::optional<BestEvaluation> best = std::nullopt;   // the lowest validation loss so far
  // Of early stopping: the validation loss to improve on, and how many evaluations have not.
  std::optional<double> loss_to_beat = std::nullopt;
  int64_t evaluations_without_improvement = 0;

  bool operator==(const RunPosition&) const = default;
};

// Settings as key and value, sorted by key.
using RunSettings = std::map<std::string, std::string, std::less<>>;

struct StateEntry {
  StateKind kind;
  int64_t offset;  // bytes from the start of the state file
  int64_t bytes;
  std::string checksum;  // Hasher::HexDigest
};

struct TensorEntry {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype;
  Trainability trainability;
  std::vector<StateEntry> states;  // in the order of SavedStates

  int64_t elements() const;  // REQUIRES: a shape that ParseManifest accepted
};

struct CheckpointManifest {
  RunPosition position;
  RunSettings settings;
  OptimizerKind optimizer = OptimizerKind::kAdamW;  // whose states they are
  std::vector<TensorEntry> tensors;  // their states follow each other in the file without gaps

  int64_t state_bytes() const;
};

// The kinds that are saved: a parameter that is its own master (f32) or frozen as it is, any other
// as its master, of which it is the rounded form; of trainable tensors the moments that the
// optimizer has. The format in which a store keeps them makes no difference.
std::vector<StateKind> SavedStates(DType dtype, Trainability trainability, OptimizerKind optimizer);
// The type of the saved elements.
DType SavedDType(StateKind kind, DType dtype);

// Errors: kInvalidArgument for text that is not UTF-8; kResourceExhausted above kManifestBytesMax.
absl::StatusOr<std::string> SerializeManifest(const CheckpointManifest& manifest);

// Errors: kDataLoss for a damaged text (its checksum does not fit) and for one that contradicts
// itself or the format: nothing it says is believed unless all of it is consistent;
// kFailedPrecondition for a version this program does not know.
absl::StatusOr<CheckpointManifest> ParseManifest(std::string_view text);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHECKPOINT_MANIFEST_H_
