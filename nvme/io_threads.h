// IoBackend by a pool of threads in pread, pwrite and fdatasync: for machines where io_uring is not
// allowed (containers). Same contract and error messages as IoRing.
//
// Thread-safe. Several threads call the sink at once.
#ifndef GANTRY_NVME_IO_THREADS_H_
#define GANTRY_NVME_IO_THREADS_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "base/mutex.h"
#include "nvme/io_backend.h"
#include "nvme/request_progress.h"
#include "nvme/request_queue.h"

namespace gantry {

class IoThreads final : public IoBackend {
 public:
  struct Options {
    IoSink* sink;      // outlives the backend, as does `files`
    int threads;       // 1..64: pieces in flight
    FileCalls* files;  // its ReadAt, WriteAt and Sync
  };

  // Errors: kInvalidArgument for a number out of range, kUnavailable when the system refuses
  // another thread.
  static absl::StatusOr<std::unique_ptr<IoThreads>> Create(const Options& options);
  ~IoThreads() override;

  void Submit(const IoRequest& request) override;
  void Cancel(uint64_t tag) override;
  void Promote(uint64_t tag, IoPriority priority) override;
  std::string_view name() const override { return "threads"; }
  IoCounters counters() const override;

 private:
  explicit IoThreads(const Options& options) : options_(options) {}
  absl::Status Start();
  void Work() GANTRY_EXCLUDES(mutex_);
  absl::Status Transfer(RequestProgress& piece) GANTRY_EXCLUDES(mutex_);
  int64_t Call(const IoRequest& piece);
  std::vector<RequestQueue::Completion> TakeCompletions() GANTRY_REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  CondVar work_;  // queue_ or stopping_ changed
  RequestQueue queue_ GANTRY_GUARDED_BY(mutex_);
  bool stopping_ GANTRY_GUARDED_BY(mutex_) = false;
  IoCounters counters_ GANTRY_GUARDED_BY(mutex_);
  // thread: these block in system calls, so they cannot be of the compute team.
  std::vector<std::thread> threads_;  // written by Create and the destructor only
};

}  // namespace gantry

#endif  // GANTRY_NVME_IO_THREADS_H_
