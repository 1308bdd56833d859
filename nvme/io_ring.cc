#include "nvme/io_ring.h"

#include <liburing.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <deque>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nvme/describe.h"
#include "nvme/request_progress.h"
#include "nvme/signal_block.h"

namespace gantry {
namespace {

constexpr int kQueueDepthMax = 4096;
// user_data of the eventfd read. The all-ones value is liburing's own (its internal time-outs).
constexpr uint64_t kWakeData = UINT64_MAX - 1;

struct SetupFlags {
  unsigned flags;
  const char* name;
};
// Best first. A kernel that lacks a flag answers EINVAL, so the sets are found by trying.
constexpr SetupFlags kSetups[] = {
    {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL,
     "SINGLE_ISSUER|DEFER_TASKRUN|SUBMIT_ALL"},  // 6.1
    {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL,
     "SINGLE_ISSUER|COOP_TASKRUN|SUBMIT_ALL"},                                         // 6.0
    {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL, "COOP_TASKRUN|SUBMIT_ALL"},  // 5.19
    {IORING_SETUP_SUBMIT_ALL, "SUBMIT_ALL"},                                           // 5.18
    {0, "none"},
};

// shared: each piece in flight holds its request, and so does the queue.
using RequestPointer = std::shared_ptr<SplitRequest>;

struct Piece {
  std::optional<RequestProgress> progress;  // empty: the place is free
  RequestPointer request;
  Nanoseconds retry_at = 0;
};

}  // namespace

// Life: Start makes the thread, which makes the ring and reports; then Run until Stop was called
// and everything accepted has completed. Fields without a guard belong to the thread.
class IoRing::Loop {
 public:
  explicit Loop(const Options& options)
      : options_(options), pieces_(static_cast<size_t>(options.queue_depth)) {
    for (int i = options.queue_depth - 1; i >= 0; --i) free_.push_back(i);
  }
  ~Loop() { Stop(); }

  absl::Status Start();
  // Waits until everything accepted has completed, and ends the thread. Idempotent.
  void Stop() GANTRY_EXCLUDES(mutex_);
  absl::Status Submit(const IoRequest& request) GANTRY_EXCLUDES(mutex_);
  IoCounters counters() const GANTRY_EXCLUDES(mutex_);
  std::string_view flags() const { return flags_; }

 private:
  struct Finished {
    uint64_t tag;
    absl::Status status;
  };

  absl::Status SetUpRing();
  void Main();
  void Run();
  bool TakeInbox() GANTRY_EXCLUDES(mutex_);
  void Deliver() GANTRY_EXCLUDES(mutex_);
  void StartPieces();
  void Issue(int index);
  void ArmWake();
  void Enter(int completions_min);
  void Reap();
  void OnCompletion(uint64_t user_data, int result);
  void EndPiece(int index, absl::Status status);
  io_uring_sqe* NextEntry();
  void Wake();

  const Options options_;
  // thread: blocks in io_uring_enter, so it cannot be one of the compute team.
  std::thread thread_;
  FileDescriptor wake_fd_;

  mutable Mutex mutex_;
  CondVar started_;
  std::optional<absl::Status> start_status_ GANTRY_GUARDED_BY(mutex_);
  std::deque<IoRequest> inbox_ GANTRY_GUARDED_BY(mutex_);
  int64_t pending_ GANTRY_GUARDED_BY(mutex_) = 0;
  bool stopping_ GANTRY_GUARDED_BY(mutex_) = false;
  IoCounters published_ GANTRY_GUARDED_BY(mutex_);

  std::string_view flags_;  // written before start_status_
  io_uring ring_{};
  uint64_t wake_value_ = 0;
  bool wake_armed_ = false;
  bool draining_ = false;  // stopping_ as last seen
  std::vector<Piece> pieces_;
  std::vector<int> free_;             // indices into pieces_
  std::vector<int> retries_;          // indices of pieces that wait for their retry_at
  std::deque<RequestPointer> queue_;  // requests with pieces left to start
  std::vector<Finished> finished_;    // to be delivered
  IoCounters counters_;
  MonotonicClock clock_;
};

absl::Status IoRing::Loop::Start() {
  wake_fd_ = FileDescriptor(eventfd(0, EFD_CLOEXEC));
  if (!wake_fd_.valid()) return Unavailable("eventfd: ", DescribeErrno(errno));
  try {
    const ScopedSignalBlock block;
    thread_ = std::thread([this] { Main(); });
  } catch (const std::system_error& error) {
    return Unavailable("the io_uring thread could not be started: ", error.what());
  }
  MutexLock lock(mutex_);
  while (!start_status_.has_value()) started_.Wait(mutex_);
  return *start_status_;
}

void IoRing::Loop::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
  MutexLock lock(mutex_);
  GANTRY_CHECK(pending_ == 0) << pending_ << " requests were not completed";
}

absl::Status IoRing::Loop::Submit(const IoRequest& request) {
  CheckRequest(request);
  bool was_empty = false;
  {
    MutexLock lock(mutex_);
    if (pending_ >= options_.pending_max) {
      return ResourceExhausted("the I/O queue is full: ", pending_,
                               " requests have not completed yet");
    }
    ++pending_;
    was_empty = inbox_.empty();
    inbox_.push_back(request);
  }
  if (was_empty) Wake();  // otherwise whoever filled it has woken the thread
  return absl::OkStatus();
}

IoCounters IoRing::Loop::counters() const {
  MutexLock lock(mutex_);
  return published_;
}

void IoRing::Loop::Wake() {
  const uint64_t one = 1;
  const ssize_t written = write(wake_fd_.get(), &one, sizeof(one));
  GANTRY_CHECK(written == sizeof(one)) << "eventfd write: " << DescribeErrno(errno);
}

absl::Status IoRing::Loop::SetUpRing() {
  const auto entries = static_cast<unsigned>(options_.queue_depth) + 1;  // one for the eventfd
  int result = -EINVAL;
  for (const SetupFlags& setup : kSetups) {
    flags_ = setup.name;
    result = io_uring_queue_init(entries, &ring_, setup.flags);
    if (result != -EINVAL) break;
  }
  if (result == 0) return absl::OkStatus();
  return Unavailable("io_uring_setup with ", entries, " entries: ", DescribeErrno(-result));
}

// The ring is made here because SINGLE_ISSUER binds it to the task that makes it.
void IoRing::Loop::Main() {
  pthread_setname_np(pthread_self(), "gantry-io");
  const absl::Status status = SetUpRing();
  {
    MutexLock lock(mutex_);
    start_status_ = status;
    started_.NotifyOne();
  }
  if (!status.ok()) return;
  Run();
  io_uring_queue_exit(&ring_);
}

void IoRing::Loop::Run() {
  while (true) {
    if (TakeInbox()) continue;  // again, so that whatever came in meanwhile starts together
    if (!wake_armed_ && !draining_) ArmWake();
    StartPieces();
    if (!finished_.empty()) {
      Enter(0);  // the drive gets its next pieces before anyone is told of the last ones
      Deliver();
      Reap();  // a stream of requests that end at once must not keep the others waiting
      continue;
    }
    const bool idle = free_.size() == pieces_.size() && queue_.empty();
    if (draining_ && idle && !wake_armed_) return;
    Enter(1);
    Reap();
  }
}

// Moves new requests to the queue; whether there were any.
bool IoRing::Loop::TakeInbox() {
  std::deque<IoRequest> taken;
  {
    MutexLock lock(mutex_);
    taken.swap(inbox_);
    draining_ = stopping_;
  }
  for (const IoRequest& request : taken) {
    auto split = std::make_shared<SplitRequest>(request);
    if (split->finished()) {  // empty
      finished_.push_back({split->tag(), absl::OkStatus()});
    } else {
      queue_.push_back(std::move(split));
    }
  }
  return !taken.empty();
}

void IoRing::Loop::Deliver() {
  std::vector<Finished> delivering = std::exchange(finished_, {});
  for (const Finished& finished : delivering) {
    ++counters_.requests;
    if (!finished.status.ok()) ++counters_.failures;
  }
  {
    MutexLock lock(mutex_);
    pending_ -= static_cast<int64_t>(delivering.size());
    published_ = counters_;
  }
  for (Finished& finished : delivering) {
    options_.sink->OnIoComplete(finished.tag, std::move(finished.status));
  }
}

void IoRing::Loop::StartPieces() {
  if (!retries_.empty()) {
    const Nanoseconds now = clock_.Now();
    std::erase_if(retries_, [&](int index) {
      const bool due = pieces_[static_cast<size_t>(index)].retry_at <= now;
      if (due) Issue(index);
      return due;
    });
  }
  while (!free_.empty() && !queue_.empty()) {
    const RequestPointer request = queue_.front();
    if (!request->HasNext()) {  // all started, or failed
      queue_.pop_front();
      continue;
    }
    const int index = free_.back();
    free_.pop_back();
    Piece& piece = pieces_[static_cast<size_t>(index)];
    piece.request = request;
    piece.progress = request->Next();
    ++counters_.pieces;
    Issue(index);
  }
}

// Never null: there is an entry for every piece and one for the eventfd, and each has at most one
// in the ring.
io_uring_sqe* IoRing::Loop::NextEntry() {
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  GANTRY_CHECK(entry != nullptr) << "submission queue of depth " << options_.queue_depth;
  return entry;
}

void IoRing::Loop::Issue(int index) {
  const IoRequest& next = pieces_[static_cast<size_t>(index)].progress->next();
  io_uring_sqe* entry = NextEntry();
  const auto size = static_cast<unsigned>(next.buffer.size());
  const auto offset = static_cast<uint64_t>(next.offset);
  switch (next.kind) {
    case IoRequest::Kind::kRead:
      io_uring_prep_read(entry, next.fd, next.buffer.data(), size, offset);
      break;
    case IoRequest::Kind::kWrite:
      io_uring_prep_write(entry, next.fd, next.buffer.data(), size, offset);
      break;
    case IoRequest::Kind::kSync:
      io_uring_prep_fsync(entry, next.fd, IORING_FSYNC_DATASYNC);
      break;
  }
  io_uring_sqe_set_data64(entry, static_cast<uint64_t>(index));
}

void IoRing::Loop::ArmWake() {
  io_uring_sqe* entry = NextEntry();
  io_uring_prep_read(entry, wake_fd_.get(), &wake_value_, sizeof(wake_value_), 0);
  io_uring_sqe_set_data64(entry, kWakeData);
  wake_armed_ = true;
}

// Gives the kernel what was prepared, lets it post completions, and waits for `completions_min`
// completions, or for the next retry.
void IoRing::Loop::Enter(int completions_min) {
  int result = 0;
  if (completions_min == 0) {
    result = io_uring_submit_and_get_events(&ring_);
  } else if (retries_.empty()) {
    result = io_uring_submit_and_wait(&ring_, static_cast<unsigned>(completions_min));
  } else {
    __kernel_timespec delay = {.tv_sec = 0, .tv_nsec = kRetryDelayNanoseconds};
    io_uring_cqe* first = nullptr;
    result = io_uring_submit_and_wait_timeout(
        &ring_, &first, static_cast<unsigned>(completions_min), &delay, nullptr);
  }
  // Entries that were not taken stay in the ring for the next call. Any other errno means that
  // the ring is broken; the kernel may still write to buffers that we could then no longer wait
  // for, so there is no safe way to go on.
  const bool transient = result == -EINTR || result == -EAGAIN || result == -EBUSY ||
                         result == -ENOMEM || result == -ETIME;
  GANTRY_CHECK(result >= 0 || transient) << "io_uring_enter: " << DescribeErrno(-result);
}

void IoRing::Loop::Reap() {
  unsigned head = 0;
  unsigned count = 0;
  io_uring_cqe* completion = nullptr;
  io_uring_for_each_cqe(&ring_, head, completion) {
    ++count;
    OnCompletion(completion->user_data, completion->res);
  }
  io_uring_cq_advance(&ring_, count);
}

void IoRing::Loop::OnCompletion(uint64_t user_data, int result) {
  if (user_data == LIBURING_UDATA_TIMEOUT) return;
  if (user_data == kWakeData) {
    GANTRY_CHECK(result == sizeof(wake_value_) || result == -EAGAIN || result == -EINTR)
        << "eventfd read gave " << result;
    wake_armed_ = false;
    return;
  }
  GANTRY_CHECK(user_data < pieces_.size()) << "completion of unknown piece " << user_data;
  const auto index = static_cast<int>(user_data);
  Piece& piece = pieces_[user_data];
  GANTRY_CHECK(piece.progress.has_value()) << "piece " << index << " completed twice";
  switch (piece.progress->Advance(result)) {
    case RequestProgress::Action::kDone:
      CountDone(piece.progress->piece(), counters_);
      EndPiece(index, absl::OkStatus());
      break;
    case RequestProgress::Action::kFail:
      EndPiece(index, piece.progress->Failure(DescribeFd(piece.progress->piece().fd)));
      break;
    case RequestProgress::Action::kResume:
      ++counters_.resubmits;
      Issue(index);
      break;
    case RequestProgress::Action::kRetryLater:
      ++counters_.retries;
      piece.retry_at = clock_.Now() + kRetryDelayNanoseconds;
      retries_.push_back(index);
      break;
  }
}

void IoRing::Loop::EndPiece(int index, absl::Status status) {
  Piece& piece = pieces_[static_cast<size_t>(index)];
  const RequestPointer request = std::move(piece.request);
  piece = Piece();
  free_.push_back(index);
  request->Finish(std::move(status));
  if (request->finished()) finished_.push_back({request->tag(), request->TakeStatus()});
}

IoRing::IoRing(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
// Stops first: callbacks may still submit, so loop_ must be whole until then.
IoRing::~IoRing() { loop_->Stop(); }

absl::StatusOr<std::unique_ptr<IoRing>> IoRing::Create(const Options& options) {
  GANTRY_CHECK(options.sink != nullptr);
  if (options.queue_depth < 1 || options.queue_depth > kQueueDepthMax) {
    return InvalidArgument("I/O queue depth must be 1 to ", kQueueDepthMax, ", not ",
                           options.queue_depth);
  }
  if (options.pending_max < 1) {
    return InvalidArgument("pending_max must be at least 1, not ", options.pending_max);
  }
  auto loop = std::make_unique<Loop>(options);
  GANTRY_RETURN_IF_ERROR(loop->Start());
  return std::unique_ptr<IoRing>(new IoRing(std::move(loop)));
}

absl::Status IoRing::Submit(const IoRequest& request) { return loop_->Submit(request); }
IoCounters IoRing::counters() const { return loop_->counters(); }
std::string_view IoRing::flags() const { return loop_->flags(); }

}  // namespace gantry
