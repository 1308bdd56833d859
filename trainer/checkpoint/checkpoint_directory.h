// Where a run keeps its checkpoints: DIR/step-00000010/{manifest.json, state.bin} for each, and
// DIR/latest, which lists them, newest first.
//
// A checkpoint is written under a temporary name and synced; `latest` is replaced atomically; then
// the checkpoint is renamed; only then are old ones removed. So after a crash at any moment every
// checkpoint that is there is whole, and the newest is the first of those in `latest`.
//
// DIR/best names the checkpoint that a run wants to keep whatever comes after it. It is written
// once that checkpoint is there, and the one it names is never surplus.
//
// One run at a time writes to a directory (it holds a lock); reading needs no lock. Every
// checkpoint in the directory counts as its own: those beyond `keep` are removed, oldest first.
//
// Thread-compatible. Does not own the store.
#ifndef GANTRY_TRAINER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
#define GANTRY_TRAINER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "gemini/parameter_store.h"
#include "trainer/checkpoint/manifest.h"

namespace gantry {

// File names inside a checkpoint.
inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kStateFile[] = "state.bin";
// Beside the checkpoints: which of them is the best.
inline constexpr char kBestFile[] = "best";

// The names of the checkpoints in a directory, newest first: the order of `latest`, then whatever
// it does not list by descending step (someone copied them there). Empty when
// there are none. Errors: kNotFound without the directory; kDataLoss for a `latest` that is no list
// of such names; those of reading.
absl::StatusOr<std::vector<std::string>> ListCheckpoints(FileCalls& files,
                                                         const std::string& directory);

// The name in DIR/best; empty without one, or where the checkpoint is gone. Errors: kDataLoss for a
// file that holds no such name; those of reading.
absl::StatusOr<std::string> BestCheckpoint(FileCalls& files, const std::string& directory);

class CheckpointDirectory {
 public:
  struct Options {
    FileCalls* files;  // outlives the directory
    std::string path;  // created, with its parents, when missing
    int64_t keep = 2;  // checkpoints beside the best; 0: all
  };
  // Removes what a crashed run left half written. Errors: kUnavailable while another run writes
  // there; kInvalidArgument for a negative `keep`; those of ListCheckpoints and of the file system.
  static absl::StatusOr<std::unique_ptr<CheckpointDirectory>> Open(Options options);

  const std::string& path() const { return options_.path; }
  // Newest first.
  const std::vector<std::string>& names() const { return names_; }

  // Writes the states of all tensors in pieces, and returns the new checkpoint's path. REQUIRES:
  // between steps. After an error the older checkpoints are as they were, unless only removing
  // surplus ones failed. Errors: those of the store and of the file system.
  absl::StatusOr<std::string> Save(ParameterStore& store, const RunPosition& position,
                                   const RunSettings& settings);
  // Names the newest checkpoint the best; the one that was is surplus where it is old enough.
  // REQUIRES: there is one. Errors: those of the file system.
  absl::Status MarkNewestBest();
  const std::string& best() const { return best_; }  // its name; empty: none

 private:
  CheckpointDirectory(Options options, FileDescriptor lock, std::vector<std::string> names,
                      std::string best)
      : options_(std::move(options)),
        lock_(std::move(lock)),
        names_(std::move(names)),
        best_(std::move(best)) {}
  std::string PathOf(const std::string& name) const { return options_.path + "/" + name; }
  std::string FreeName(int64_t step) const;
  absl::Status WriteTemporary(ParameterStore& store, CheckpointManifest manifest);
  absl::Status Publish(const std::string& name);
  absl::Status RemoveSurplus();

  Options options_;
  FileDescriptor lock_;
  std::vector<std::string> names_;
  std::string best_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
