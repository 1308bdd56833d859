// A TensorBoard event file: scalars and texts of a run, which `tensorboard --logdir` shows.
//
//   GANTRY_ASSIGN_OR_RETURN(auto events, EventFile::Create({.files = &files, .clock = &wall_clock,
//       .directory = "runs/a/tensorboard", .host = "node1", .process = 4711, .first_step = 1}));
//   GANTRY_RETURN_IF_ERROR(events->AddScalars(1, {{{"train/loss", 5.5}}}));
//   GANTRY_RETURN_IF_ERROR(events->Close());
//
// Each run makes a file of its own, whose name sorts behind those that are there. It begins by
// telling readers to forget what the older files hold from `first_step` on, so that a run that
// resumes neither loses steps nor shows them twice.
//
// Each record is handed to the operating system in one write as it is added: a reader sees it at
// once, and a process that dies loses nothing; Close syncs. After an error of writing the file
// takes no more.
//
// Thread-compatible. All calls block.
#ifndef GANTRY_TRAINER_LOGGING_EVENT_FILE_H_
#define GANTRY_TRAINER_LOGGING_EVENT_FILE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "trainer/logging/event_message.h"

namespace gantry {

class EventFile {
 public:
  struct Options {
    // Outlive the file.
    FileCalls* files;
    Clock* clock;           // whose epoch is 1970
    std::string directory;  // made, with its parents, when missing
    std::string host;       // into the file's name
    int64_t process;        // likewise
    int64_t first_step;     // the first that this run will tell of; not negative
  };
  // Makes the file. Errors: those of the file system.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const Options& options);

  const std::string& path() const { return path_; }

  // Errors: those of writing, the first one again from then on.
  absl::Status AddScalars(int64_t step, std::span<const ScalarPoint> points);
  absl::Status AddText(int64_t step, const TextPoint& point);
  // Syncs and closes; nothing can be added afterwards. Errors: as above.
  absl::Status Close();

 private:
  EventFile(const Options& options, FileDescriptor file, std::string path)
      : files_(options.files),
        clock_(options.clock),
        file_(std::move(file)),
        path_(std::move(path)) {}
  EventStamp StampOf(int64_t step) const;
  absl::Status Append(const std::string& record);

  FileCalls* files_;
  Clock* clock_;
  FileDescriptor file_;
  std::string path_;
  int64_t offset_ = 0;
  absl::Status status_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_LOGGING_EVENT_FILE_H_
