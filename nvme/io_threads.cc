#include "nvme/io_threads.h"

#include <pthread.h>

#include <memory>
#include <optional>
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

absl::StatusOr<std::unique_ptr<IoThreads>> IoThreads::Create(const Options& options) {
  GANTRY_CHECK(options.sink != nullptr && options.files != nullptr);
  if (options.threads < 1 || options.threads > kThreadsMax) {
    return InvalidArgument("I/O threads must be 1 to ", kThreadsMax, ", not ", options.threads);
  }
  std::unique_ptr<IoThreads> backend(new IoThreads(options));
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
  GANTRY_CHECK(queue_.pending() == 0) << queue_.pending() << " requests were not completed";
}

void IoThreads::Submit(const IoRequest& request) {
  CheckRequest(request);
  MutexLock lock(mutex_);
  queue_.Push(request);
  work_.NotifyOne();
}

void IoThreads::Cancel(uint64_t tag) {
  MutexLock lock(mutex_);
  queue_.Cancel(tag);
  if (queue_.HasCompletions()) work_.NotifyOne();
}

void IoThreads::Promote(uint64_t tag, IoPriority priority) {
  MutexLock lock(mutex_);
  queue_.Promote(tag, priority);
}

IoCounters IoThreads::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

std::vector<RequestQueue::Completion> IoThreads::TakeCompletions() {
  std::vector<RequestQueue::Completion> taken = queue_.TakeCompletions();
  for (const RequestQueue::Completion& completion : taken) {
    ++counters_.requests;
    if (!completion.status.ok()) ++counters_.failures;
  }
  return taken;
}

void IoThreads::Work() {
  pthread_setname_np(pthread_self(), "gantry-io");
  std::optional<RequestQueue::Piece> piece;  // that has ended, with `status`
  absl::Status status;
  while (true) {
    std::vector<RequestQueue::Completion> completions;
    {
      MutexLock lock(mutex_);
      if (piece.has_value()) {
        if (status.ok()) CountDone(piece->progress.piece(), counters_);
        queue_.Finish(piece->tag, std::move(status));
        piece.reset();
      }
      while (!queue_.HasCompletions() && !queue_.HasNext() && !stopping_) work_.Wait(mutex_);
      completions = TakeCompletions();
      if (completions.empty()) {
        // While another thread still transfers or calls back, that thread drains.
        if (!queue_.HasNext()) return;
        piece = queue_.Next();
        ++counters_.pieces;
      }
      if (queue_.HasNext()) work_.NotifyOne();  // one more thread may join in
    }
    for (RequestQueue::Completion& completion : completions) {
      options_.sink->OnIoComplete(completion.tag, std::move(completion.status));
    }
    if (piece.has_value()) status = Transfer(piece->progress);
  }
}

int64_t IoThreads::Call(const IoRequest& piece) {
  switch (piece.kind) {
    case IoRequest::Kind::kRead:
      return options_.files->ReadAt(piece.fd, piece.buffer, piece.offset);
    case IoRequest::Kind::kWrite:
      return options_.files->WriteAt(piece.fd, piece.buffer, piece.offset);
    case IoRequest::Kind::kSync:
      return options_.files->Sync(piece.fd, FileCalls::SyncKind::kData);
  }
  GANTRY_CHECK(false) << "kind " << static_cast<int>(piece.kind);
}

absl::Status IoThreads::Transfer(RequestProgress& piece) {
  MonotonicClock clock;
  if (piece.piece().kind == IoRequest::Kind::kWrite) HashPiece(piece.piece());
  while (true) {
    const RequestProgress::Action action = piece.Advance(Call(piece.next()));
    {
      MutexLock lock(mutex_);
      ++counters_.system_calls;
      if (action == RequestProgress::Action::kResume) ++counters_.resubmits;
      if (action == RequestProgress::Action::kRetryLater) ++counters_.retries;
    }
    switch (action) {
      case RequestProgress::Action::kDone:
        if (piece.piece().kind == IoRequest::Kind::kRead) HashPiece(piece.piece());
        return absl::OkStatus();
      case RequestProgress::Action::kFail:
        return piece.Failure(DescribeFd(piece.piece().fd));
      case RequestProgress::Action::kResume:
        break;
      case RequestProgress::Action::kRetryLater:
        clock.SleepUntil(clock.Now() + kRetryDelayNanoseconds);
        break;
    }
  }
}

}  // namespace gantry
