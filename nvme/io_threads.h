// IoBackend by a pool of threads in pread, pwrite and fdatasync: for machines where io_uring is not
// allowed (containers). Same contract and error messages as IoRing.
//
// Thread-safe. Several threads call the sink at once.
#ifndef GANTRY_NVME_IO_THREADS_H_
#define GANTRY_NVME_IO_THREADS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "nvme/file_calls.h"
#include "nvme/io_backend.h"
#include "nvme/request_progress.h"

namespace gantry {

class IoThreads final : public IoBackend {
 public:
  struct Options {
    IoSink* sink;                          // outlives the backend
    int threads;                           // 1..64: pieces in flight
    int pending_max;                       // requests accepted and not completed, at least 1
    std::unique_ptr<TransferCalls> calls;  // PosixTransferCalls outside tests
  };

  // Errors: kInvalidArgument for a number out of range, kUnavailable when the system refuses
  // another thread.
  static absl::StatusOr<std::unique_ptr<IoThreads>> Create(Options options);
  ~IoThreads() override;

  absl::Status Submit(const IoRequest& request) override;
  std::string_view name() const override { return "threads"; }
  IoCounters counters() const override;

 private:
  // shared: each piece in flight holds its request, and so does the queue.
  using RequestPointer = std::shared_ptr<SplitRequest>;

  explicit IoThreads(Options options) : options_(std::move(options)) {}
  absl::Status Start();
  void Work();
  void FinishPiece(const RequestProgress& piece, absl::Status status, const RequestPointer& request)
      GANTRY_EXCLUDES(mutex_);
  void Complete(SplitRequest& request) GANTRY_EXCLUDES(mutex_);
  absl::Status Transfer(RequestProgress& piece) GANTRY_EXCLUDES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  CondVar work_;                                                // queue_ or stopping_ changed
  std::deque<RequestPointer> queue_ GANTRY_GUARDED_BY(mutex_);  // with pieces left to start
  int64_t pending_ GANTRY_GUARDED_BY(mutex_) = 0;
  bool stopping_ GANTRY_GUARDED_BY(mutex_) = false;
  IoCounters counters_ GANTRY_GUARDED_BY(mutex_);
  // thread: these block in system calls, so they cannot be of the compute team.
  std::vector<std::thread> threads_;  // written by Create and the destructor only
};

}  // namespace gantry

#endif  // GANTRY_NVME_IO_THREADS_H_
