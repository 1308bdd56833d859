#include "nvme/create_io_backend.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nvme/describe.h"
#include "nvme/io_ring.h"
#include "nvme/io_threads.h"
#include "nvme/scratch_file.h"

namespace gantry {
namespace {

constexpr size_t kTrialBytes = 4096;
constexpr int kThreadsMax = 16;  // enough to keep one drive busy with 1 MiB pieces

// Waits for one completion at a time.
class TrialSink final : public IoSink {
 public:
  void OnIoComplete(uint64_t /*tag*/, absl::Status status) override {
    MutexLock lock(mutex_);
    result_ = std::move(status);
    done_.NotifyOne();
  }
  absl::Status Wait() {
    MutexLock lock(mutex_);
    while (!result_.has_value()) done_.Wait(mutex_);
    absl::Status result = *std::move(result_);
    result_.reset();
    return result;
  }

 private:
  Mutex mutex_;
  CondVar done_;
  std::optional<absl::Status> result_ GANTRY_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<IoBackend>> CreateThreads(const IoBackendOptions& options) {
  return IoThreads::Create({.sink = options.sink,
                            .threads = std::min(options.queue_depth, kThreadsMax),
                            .files = options.files});
}

absl::StatusOr<std::unique_ptr<IoBackend>> CreateRing(const IoBackendOptions& options) {
  return IoRing::Create({.sink = options.sink,
                         .queue_depth = options.queue_depth,
                         .fixed_files = options.fixed_files,
                         .fixed_memory = options.fixed_memory,
                         .logger = options.logger});
}

// A backend that has proved itself: a second one of the same kind, with a sink of its own, has
// written a file and read it back.
absl::StatusOr<std::unique_ptr<IoBackend>> CreateTried(
    absl::StatusOr<std::unique_ptr<IoBackend>> (*create)(const IoBackendOptions&),
    const IoBackendOptions& options, int fd) {
  TrialSink sink;
  IoBackendOptions trial_options = options;
  trial_options.sink = &sink;
  trial_options.fixed_files = {};  // the second backend registers them
  trial_options.fixed_memory = {};
  GANTRY_ASSIGN_OR_RETURN(std::unique_ptr<IoBackend> trial, create(trial_options));
  std::vector<std::byte> written(kTrialBytes);
  for (size_t i = 0; i < kTrialBytes; ++i) written[i] = static_cast<std::byte>(i * 7 + 1);
  std::vector<std::byte> read(kTrialBytes);
  IoRequest request = {
      .kind = IoRequest::Kind::kWrite, .fd = fd, .offset = 0, .buffer = written, .tag = 0};
  trial->Submit(request);
  GANTRY_RETURN_IF_ERROR(sink.Wait());
  request.kind = IoRequest::Kind::kRead;
  request.buffer = read;
  trial->Submit(request);
  GANTRY_RETURN_IF_ERROR(sink.Wait());
  if (read != written) {
    return DataLoss(trial->name(), " read back other bytes than it wrote to '", DescribeFd(fd),
                    "'");
  }
  return create(options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<IoBackend>> CreateIoBackend(const IoBackendOptions& options) {
  GANTRY_CHECK(options.sink != nullptr && options.logger != nullptr && options.files != nullptr);
  GANTRY_ASSIGN_OR_RETURN(const FileDescriptor file,
                          CreateScratchFile(*options.files, options.directory));
  if (options.preference != IoPreference::kThreads) {
    auto ring = CreateTried(CreateRing, options, file.get());
    if (ring.ok() || absl::IsInvalidArgument(ring.status())) return ring;
    const std::string why =
        StrCat("io_uring does not work here (", FromAbsl(ring.status().message()), ")");
    if (options.preference == IoPreference::kIoUring) {
      return MakeStatus(ring.status().code(), why,
                        "; containers and kernel.io_uring_disabled forbid it: allow it or choose "
                        "the thread backend");
    }
    auto threads = CreateTried(CreateThreads, options, file.get());
    if (threads.ok()) {
      options.logger->WarnOnce(StrCat(why, ": file I/O uses ",
                                      std::min(options.queue_depth, kThreadsMax),
                                      " pread/pwrite threads instead"));
    }
    return threads;
  }
  return CreateTried(CreateThreads, options, file.get());
}

}  // namespace gantry
