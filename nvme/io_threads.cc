#include "nvme/io_threads.h"

#include <pthread.h>

#include <memory>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nvme/describe.h"
#include "nvme/signal_block.h"

namespace gantry {
namespace {
constexpr int kThreadsMax = 64;
}  // namespace

absl::StatusOr<std::unique_ptr<IoThreads>> IoThreads::Create(Options options) {
  GANTRY_CHECK(options.sink != nullptr && options.calls != nullptr);
  if (options.threads < 1 || options.threads > kThreadsMax) {
    return InvalidArgument("I/O threads must be 1 to ", kThreadsMax, ", not ", options.threads);
  }
  if (options.pending_max < 1) {
    return InvalidArgument("pending_max must be at least 1, not ", options.pending_max);
  }
  std::unique_ptr<IoThreads> backend(new IoThreads(std::move(options)));
  GANTRY_RETURN_IF_ERROR(backend->Start());
  return backend;
}

absl::Status IoThreads::Start() {
  const ScopedSignalBlock block;
  for (int i = 0; i < options_.threads; ++i) {
    try {
      threads_.emplace_back([this] { Work(); });
    } catch (const std::system_error& error) {  // the destructor joins those that did start
      return Unavailable("I/O thread ", i + 1, " of ", options_.threads,
                         " could not be started: ", error.what());
    }
  }
  return absl::OkStatus();
}

IoThreads::~IoThreads() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    work_.NotifyAll();
  }
  for (auto& thread : threads_) thread.join();
  MutexLock lock(mutex_);
  GANTRY_CHECK(queue_.empty() && pending_ == 0) << pending_ << " requests were not completed";
}

absl::Status IoThreads::Submit(const IoRequest& request) {
  CheckRequest(request);
  auto split = std::make_shared<SplitRequest>(request);
  MutexLock lock(mutex_);
  if (pending_ >= options_.pending_max) {
    return ResourceExhausted("the I/O queue is full: ", pending_,
                             " requests have not completed yet");
  }
  ++pending_;
  queue_.push_back(std::move(split));
  work_.NotifyOne();
  return absl::OkStatus();
}

IoCounters IoThreads::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

void IoThreads::Work() {
  pthread_setname_np(pthread_self(), "gantry-io");
  while (true) {
    RequestPointer request;
    std::unique_ptr<RequestProgress> piece;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) work_.Wait(mutex_);
      if (queue_.empty()) return;  // while one thread still calls back, that thread drains
      request = queue_.front();
      if (request->HasNext()) {
        piece = std::make_unique<RequestProgress>(request->Next());
        ++counters_.pieces;
      }
      if (!request->HasNext()) {
        queue_.pop_front();
      } else {
        work_.NotifyOne();  // more pieces: one more thread may join in
      }
    }
    if (piece == nullptr) {  // an empty request
      Complete(*request);
      continue;
    }
    FinishPiece(*piece, Transfer(*piece), request);
  }
}

absl::Status IoThreads::Transfer(RequestProgress& piece) {
  MonotonicClock clock;
  while (true) {
    switch (piece.Advance(options_.calls->Transfer(piece.next()))) {
      case RequestProgress::Action::kDone:
        return absl::OkStatus();
      case RequestProgress::Action::kFail:
        return piece.Failure(DescribeFd(piece.piece().fd));
      case RequestProgress::Action::kResume: {
        MutexLock lock(mutex_);
        ++counters_.resubmits;
        break;
      }
      case RequestProgress::Action::kRetryLater: {
        {
          MutexLock lock(mutex_);
          ++counters_.retries;
        }
        clock.SleepUntil(clock.Now() + kRetryDelayNanoseconds);
        break;
      }
    }
  }
}

void IoThreads::FinishPiece(const RequestProgress& piece, absl::Status status,
                            const RequestPointer& request) {
  {
    MutexLock lock(mutex_);
    if (status.ok()) CountDone(piece.piece(), counters_);
    const bool could_start_more = request->HasNext();
    request->Finish(std::move(status));
    if (could_start_more && !request->HasNext()) {  // failed: no further piece of it may start
      GANTRY_CHECK(!queue_.empty() && queue_.front() == request);
      queue_.pop_front();
    }
    if (!request->finished()) return;
  }
  Complete(*request);
}

void IoThreads::Complete(SplitRequest& request) {
  absl::Status status = request.TakeStatus();
  {
    MutexLock lock(mutex_);
    --pending_;
    ++counters_.requests;
    if (!status.ok()) ++counters_.failures;
  }
  options_.sink->OnIoComplete(request.tag(), std::move(status));
}

}  // namespace gantry
