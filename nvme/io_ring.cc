#include "nvme/io_ring.h"

#include <liburing.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
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
#include "nvme/fixed_memory.h"
#include "nvme/request_progress.h"
#include "nvme/request_queue.h"
#include "nvme/ring_setup.h"
#include "nvme/signal_block.h"

namespace gantry {
namespace {

constexpr int kQueueDepthMax = 4096;
// user_data of the eventfd read. The all-ones value is liburing's own (its internal time-outs).
constexpr uint64_t kWakeData = UINT64_MAX - 1;

// A place in the ring.
struct Slot {
  std::optional<RequestQueue::Piece> piece;  // empty: the place is free
  Nanoseconds retry_at = 0;
};

}  // namespace

// Life: Start makes the thread, which makes the ring and reports; then Run until Stop was called
// and everything pending has completed. Fields without a guard belong to the thread.
class IoRing::Loop {
 public:
  explicit Loop(const Options& options)
      : sink_(options.sink),
        queue_depth_(options.queue_depth),
        logger_(options.logger),
        fixed_files_(options.fixed_files.begin(), options.fixed_files.end()),
        fixed_memory_(options.fixed_memory),
        slots_(static_cast<size_t>(options.queue_depth)) {
    for (int i = options.queue_depth - 1; i >= 0; --i) free_.push_back(i);
  }
  ~Loop() { Stop(); }

  absl::Status Start();
  // Waits until everything pending has completed, and ends the thread. Idempotent.
  void Stop() GANTRY_EXCLUDES(mutex_);
  void Submit(const IoRequest& request) GANTRY_EXCLUDES(mutex_);
  void Cancel(uint64_t tag) GANTRY_EXCLUDES(mutex_);
  void Promote(uint64_t tag, IoPriority priority) GANTRY_EXCLUDES(mutex_);
  IoCounters counters() const GANTRY_EXCLUDES(mutex_);
  IoSetup setup() const { return setup_; }

 private:
  // A piece that has ended, for queue_.
  struct Ended {
    uint64_t tag;
    absl::Status status;
  };

  void Main();
  void Run();
  void Exchange() GANTRY_EXCLUDES(mutex_);
  void Deliver();
  void StartPieces();
  void Issue(int index);
  void UseFixedFile(io_uring_sqe& entry, int fd) const;
  void ArmWake();
  void Flush();
  void Enter(int completions_min);
  void CheckEntered(int result);
  void Reap();
  void OnCompletion(uint64_t user_data, int result);
  void EndPiece(int index, absl::Status status);
  void HashOne();
  io_uring_sqe* NextEntry();
  void Wake();

  IoSink* const sink_;
  const int queue_depth_;
  Logger* const logger_;  // while the ring is set up
  const std::vector<int> fixed_files_;
  const FixedMemory fixed_memory_;
  // thread: blocks in io_uring_enter, so it cannot be one of the compute team.
  std::thread thread_;
  FileDescriptor wake_fd_;

  mutable Mutex mutex_;
  CondVar started_;
  std::optional<absl::Status> start_status_ GANTRY_GUARDED_BY(mutex_);
  RequestQueue queue_ GANTRY_GUARDED_BY(mutex_);
  bool awaits_work_ GANTRY_GUARDED_BY(mutex_) = false;  // will wait, and has room for a piece
  bool stopping_ GANTRY_GUARDED_BY(mutex_) = false;
  IoCounters published_ GANTRY_GUARDED_BY(mutex_);

  IoSetup setup_;  // written before start_status_
  io_uring ring_{};
  uint64_t wake_value_ = 0;
  bool wake_armed_ = false;
  bool draining_ = false;  // stopping_ as last seen
  std::vector<Slot> slots_;
  std::vector<int> free_;                    // indices into slots_
  std::vector<int> fresh_;                   // of pieces that were not issued yet
  std::vector<int> retries_;                 // of pieces that wait for their retry_at
  std::deque<RequestQueue::Piece> arrived_;  // read, but not hashed yet
  std::vector<Ended> ended_;
  std::vector<RequestQueue::Completion> completions_;  // to be delivered
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
  GANTRY_CHECK(queue_.pending() == 0) << queue_.pending() << " requests were not completed";
}

void IoRing::Loop::Submit(const IoRequest& request) {
  CheckRequest(request);
  bool wake = false;
  {
    MutexLock lock(mutex_);
    queue_.Push(request);
    // A thread that is awake, or whose ring is full, looks at the queue before it waits again.
    wake = std::exchange(awaits_work_, false);
  }
  if (wake) Wake();
}

void IoRing::Loop::Cancel(uint64_t tag) {
  bool cancelled = false;
  {
    MutexLock lock(mutex_);
    queue_.Cancel(tag);
    cancelled = queue_.HasCompletions();
  }
  if (cancelled) Wake();
}

void IoRing::Loop::Promote(uint64_t tag, IoPriority priority) {
  MutexLock lock(mutex_);
  queue_.Promote(tag, priority);
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

// The ring is made here because SINGLE_ISSUER binds it to the task that makes it.
void IoRing::Loop::Main() {
  pthread_setname_np(pthread_self(), "gantry-io");
  const absl::StatusOr<IoSetup> setup = SetUpRing({.entries = queue_depth_ + 1,  // for the eventfd
                                                   .files = fixed_files_,
                                                   .memory = &fixed_memory_,
                                                   .logger = logger_},
                                                  ring_);
  if (setup.ok()) setup_ = *setup;
  {
    MutexLock lock(mutex_);
    start_status_ = setup.status();
    started_.NotifyOne();
  }
  if (!setup.ok()) return;
  Run();
  io_uring_queue_exit(&ring_);
}

void IoRing::Loop::Run() {
  while (true) {
    Exchange();
    StartPieces();
    if (!wake_armed_ && !draining_) ArmWake();
    if (!completions_.empty() || !arrived_.empty()) {
      // The drive gets its next pieces before anyone is told of the last ones. One checksum at a
      // time, so that it never waits longer than for that.
      Enter(0);
      Deliver();
      if (!arrived_.empty()) HashOne();
      Reap();
      continue;
    }
    const bool idle = free_.size() == slots_.size();
    if (draining_ && idle && !wake_armed_) return;
    Enter(1);
    Reap();
  }
}

// All that passes between this thread and the others: takes ended pieces to the queue, and from it
// what is to be started and what is to be delivered.
void IoRing::Loop::Exchange() {
  MutexLock lock(mutex_);
  for (Ended& ended : ended_) queue_.Finish(ended.tag, std::move(ended.status));
  ended_.clear();
  completions_ = queue_.TakeCompletions();
  for (const RequestQueue::Completion& completion : completions_) {
    ++counters_.requests;
    if (!completion.status.ok()) ++counters_.failures;
  }
  while (!free_.empty() && queue_.HasNext()) {
    const int index = free_.back();
    free_.pop_back();
    slots_[static_cast<size_t>(index)].piece = queue_.Next();
    fresh_.push_back(index);
    ++counters_.pieces;
  }
  draining_ = stopping_;
  awaits_work_ = completions_.empty() && arrived_.empty() && !free_.empty();
  published_ = counters_;
}

void IoRing::Loop::Deliver() {
  for (RequestQueue::Completion& completion : completions_) {
    sink_->OnIoComplete(completion.tag, std::move(completion.status));
  }
  completions_.clear();
}

void IoRing::Loop::StartPieces() {
  if (!retries_.empty()) {
    const Nanoseconds now = clock_.Now();
    std::erase_if(retries_, [&](int index) {
      const bool due = slots_[static_cast<size_t>(index)].retry_at <= now;
      if (due) Issue(index);
      return due;
    });
  }
  for (const int index : fresh_) {
    const IoRequest& piece = slots_[static_cast<size_t>(index)].piece->progress.piece();
    if (piece.kind == IoRequest::Kind::kWrite && !piece.piece_hashes.empty()) {
      Flush();  // a checksum takes as long as a small drive needs for a piece
      HashPiece(piece);
    }
    Issue(index);
  }
  fresh_.clear();
}

// Never null: there is an entry for every piece and one for the eventfd, and each has at most one
// in the ring.
io_uring_sqe* IoRing::Loop::NextEntry() {
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  GANTRY_CHECK(entry != nullptr) << "submission queue of depth " << queue_depth_;
  return entry;
}

void IoRing::Loop::Issue(int index) {
  const IoRequest& next = slots_[static_cast<size_t>(index)].piece->progress.next();
  io_uring_sqe* entry = NextEntry();
  const auto size = static_cast<unsigned>(next.buffer.size());
  const auto offset = static_cast<uint64_t>(next.offset);
  const std::optional<int> slice =
      setup_.fixed_memory ? fixed_memory_.Find(next.buffer) : std::nullopt;
  switch (next.kind) {
    case IoRequest::Kind::kRead:
      if (slice.has_value()) {
        io_uring_prep_read_fixed(entry, next.fd, next.buffer.data(), size, offset, *slice);
      } else {
        io_uring_prep_read(entry, next.fd, next.buffer.data(), size, offset);
      }
      break;
    case IoRequest::Kind::kWrite:
      if (slice.has_value()) {
        io_uring_prep_write_fixed(entry, next.fd, next.buffer.data(), size, offset, *slice);
      } else {
        io_uring_prep_write(entry, next.fd, next.buffer.data(), size, offset);
      }
      break;
    case IoRequest::Kind::kSync:
      io_uring_prep_fsync(entry, next.fd, IORING_FSYNC_DATASYNC);
      break;
  }
  if (slice.has_value()) ++counters_.fixed_pieces;
  UseFixedFile(*entry, next.fd);
  io_uring_sqe_set_data64(entry, static_cast<uint64_t>(index));
}

// Names the file by its registered number, where it has one.
void IoRing::Loop::UseFixedFile(io_uring_sqe& entry, int fd) const {
  if (!setup_.fixed_files) return;
  const auto found = std::ranges::find(fixed_files_, fd);
  if (found == fixed_files_.end()) return;
  entry.fd = static_cast<int>(found - fixed_files_.begin());
  entry.flags |= IOSQE_FIXED_FILE;
}

void IoRing::Loop::ArmWake() {
  io_uring_sqe* entry = NextEntry();
  io_uring_prep_read(entry, wake_fd_.get(), &wake_value_, sizeof(wake_value_), 0);
  io_uring_sqe_set_data64(entry, kWakeData);
  wake_armed_ = true;
}

// Gives the kernel what was prepared.
void IoRing::Loop::Flush() {
  if (io_uring_sq_ready(&ring_) == 0) return;
  CheckEntered(io_uring_submit(&ring_));
}

// Gives the kernel what was prepared, lets it post completions, and waits for `completions_min`
// completions, or for the next retry.
void IoRing::Loop::Enter(int completions_min) {
  if (completions_min == 0) {
    CheckEntered(io_uring_submit_and_get_events(&ring_));
  } else if (retries_.empty()) {
    CheckEntered(io_uring_submit_and_wait(&ring_, static_cast<unsigned>(completions_min)));
  } else {
    __kernel_timespec delay = {.tv_sec = 0, .tv_nsec = kRetryDelayNanoseconds};
    io_uring_cqe* first = nullptr;
    CheckEntered(io_uring_submit_and_wait_timeout(
        &ring_, &first, static_cast<unsigned>(completions_min), &delay, nullptr));
  }
}

// Entries that were not taken stay in the ring for the next call. Any other errno means that the
// ring is broken; the kernel may still write to buffers that we could then no longer wait for, so
// there is no safe way to go on.
void IoRing::Loop::CheckEntered(int result) {
  ++counters_.system_calls;
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
  GANTRY_CHECK(user_data < slots_.size()) << "completion of unknown piece " << user_data;
  const auto index = static_cast<int>(user_data);
  Slot& slot = slots_[user_data];
  GANTRY_CHECK(slot.piece.has_value()) << "piece " << index << " completed twice";
  RequestProgress& progress = slot.piece->progress;
  switch (progress.Advance(result)) {
    case RequestProgress::Action::kDone:
      CountDone(progress.piece(), counters_);
      EndPiece(index, absl::OkStatus());
      break;
    case RequestProgress::Action::kFail:
      EndPiece(index, progress.Failure(DescribeFd(progress.piece().fd)));
      break;
    case RequestProgress::Action::kResume:
      ++counters_.resubmits;
      Issue(index);
      break;
    case RequestProgress::Action::kRetryLater:
      ++counters_.retries;
      slot.retry_at = clock_.Now() + kRetryDelayNanoseconds;
      retries_.push_back(index);
      break;
  }
}

// Frees the place at once; a piece that wants a checksum ends after that was computed.
void IoRing::Loop::EndPiece(int index, absl::Status status) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  RequestQueue::Piece piece = *std::move(slot.piece);
  slot = Slot();
  free_.push_back(index);
  const IoRequest& request = piece.progress.piece();
  if (status.ok() && request.kind == IoRequest::Kind::kRead && !request.piece_hashes.empty()) {
    arrived_.push_back(std::move(piece));
  } else {
    ended_.push_back({piece.tag, std::move(status)});
  }
}

void IoRing::Loop::HashOne() {
  HashPiece(arrived_.front().progress.piece());
  ended_.push_back({arrived_.front().tag, absl::OkStatus()});
  arrived_.pop_front();
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
  GANTRY_CHECK(options.logger != nullptr ||
               (options.fixed_files.empty() && options.fixed_memory.empty()));
  auto loop = std::make_unique<Loop>(options);
  GANTRY_RETURN_IF_ERROR(loop->Start());
  return std::unique_ptr<IoRing>(new IoRing(std::move(loop)));
}

void IoRing::Submit(const IoRequest& request) { loop_->Submit(request); }
void IoRing::Cancel(uint64_t tag) { loop_->Cancel(tag); }
void IoRing::Promote(uint64_t tag, IoPriority priority) { loop_->Promote(tag, priority); }
IoCounters IoRing::counters() const { return loop_->counters(); }
IoSetup IoRing::setup() const { return loop_->setup(); }

}  // namespace gantry
