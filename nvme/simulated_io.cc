#include "nvme/simulated_io.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/file_calls.h"
#include "base/strings.h"
#include "nvme/describe.h"

namespace gantry {
namespace {

constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;
constexpr int kQueueDepthMax = 4096;
// How many times longer a slow request takes.
constexpr int64_t kSlowness = 50;
constexpr uint64_t kRequestsBeforeVanishing = 65;

Nanoseconds TransferTime(int64_t bytes, int64_t bandwidth_bytes_per_second) {
  if (bandwidth_bytes_per_second == 0) return 0;
  return static_cast<Nanoseconds>(static_cast<__int128>(bytes) * kNanosecondsPerSecond /
                                  bandwidth_bytes_per_second);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SimulatedIo>> SimulatedIo::Create(const Options& options) {
  GANTRY_CHECK(options.clock != nullptr && options.loop != nullptr && options.faults != nullptr &&
               options.sink != nullptr);
  if (options.queue_depth < 1 || options.queue_depth > kQueueDepthMax || options.latency < 0 ||
      options.bandwidth_bytes_per_second < 0) {
    return InvalidArgument("a drive with ", options.queue_depth, " requests under way, ",
                           options.latency, " ns and ", options.bandwidth_bytes_per_second,
                           " bytes/s");
  }
  const FaultPlan::Verdict verdict = options.faults->Next(FaultPoint::kBackend);
  if (verdict.effect == FaultEffect::kFail) {
    return ErrnoStatus(verdict.error_number, "injected: setting up the simulated drive");
  }
  return std::unique_ptr<SimulatedIo>(new SimulatedIo(options, verdict));
}

SimulatedIo::SimulatedIo(const Options& options, const FaultPlan::Verdict& verdict)
    : options_(options),
      own_(verdict),
      requests_left_(static_cast<int64_t>(verdict.salt % kRequestsBeforeVanishing)) {}

SimulatedIo::~SimulatedIo() {
  while (queue_.pending() > 0 || completion_events_ > 0) {
    GANTRY_CHECK(options_.loop->RunNext()) << queue_.pending() << " requests have no event";
  }
}

void SimulatedIo::Submit(const IoRequest& request) {
  CheckRequest(request);
  FaultPlan::Verdict verdict = options_.faults->Next(FaultPoint::kRequest);
  if (own_.effect == FaultEffect::kVanish && requests_left_-- <= 0) {
    verdict = {.effect = FaultEffect::kFail, .error_number = ENODEV};
  }
  queue_.Push(request);
  if (verdict.effect != FaultEffect::kNone) struck_[request.tag] = verdict;
  ScheduleCompletions();  // of an empty one
  StartPieces();
}

void SimulatedIo::Cancel(uint64_t tag) {
  queue_.Cancel(tag);
  ScheduleCompletions();
}

void SimulatedIo::Promote(uint64_t tag, IoPriority priority) { queue_.Promote(tag, priority); }

void SimulatedIo::StartPieces() {
  while (under_way_ < options_.queue_depth && queue_.HasNext()) {
    RequestQueue::Piece piece = queue_.Next();
    ++under_way_;
    ++counters_.pieces;
    const IoRequest& transfer = piece.progress.piece();
    if (transfer.kind == IoRequest::Kind::kWrite) HashPiece(transfer);
    const Nanoseconds now = options_.clock->Now();
    const auto bytes = static_cast<int64_t>(transfer.buffer.size());
    free_at_ = std::max(now, free_at_) + TransferTime(bytes, options_.bandwidth_bytes_per_second);
    const Nanoseconds latency =
        options_.latency / 2 + options_.loop->Draw(std::max<Nanoseconds>(options_.latency, 1));
    Nanoseconds delay = free_at_ - now + latency;
    const auto struck = struck_.find(piece.tag);
    if (struck != struck_.end() && struck->second.effect == FaultEffect::kSlow) delay *= kSlowness;
    ScheduleTransfer(std::move(piece), delay);
  }
}

void SimulatedIo::ScheduleTransfer(RequestQueue::Piece piece, Nanoseconds delay) {
  options_.loop->Schedule(delay, [this, piece = std::move(piece)] { Transfer(piece); });
}

// One system call for what is left of the piece, and what follows from its result.
void SimulatedIo::Transfer(RequestQueue::Piece piece) {
  const auto struck = struck_.find(piece.tag);
  const bool fails = struck != struck_.end() && struck->second.effect == FaultEffect::kFail;
  const int64_t result =
      fails ? -int64_t{struck->second.error_number} : Call(piece.progress.next());
  switch (piece.progress.Advance(result)) {
    case RequestProgress::Action::kDone:
      if (piece.progress.piece().kind == IoRequest::Kind::kRead) HashPiece(piece.progress.piece());
      CountDone(piece.progress.piece(), counters_);
      return FinishPiece(piece, absl::OkStatus());
    case RequestProgress::Action::kFail:
      return FinishPiece(piece, piece.progress.Failure(DescribeFd(piece.progress.piece().fd)));
    case RequestProgress::Action::kResume:
      ++counters_.resubmits;
      return ScheduleTransfer(std::move(piece), options_.latency);
    case RequestProgress::Action::kRetryLater:
      ++counters_.retries;
      return ScheduleTransfer(std::move(piece), kRetryDelayNanoseconds);
  }
}

int64_t SimulatedIo::Call(const IoRequest& piece) {
  ++counters_.system_calls;
  FileCalls& files = *options_.faults->files();
  switch (piece.kind) {
    case IoRequest::Kind::kRead:
      return files.ReadAt(piece.fd, piece.buffer, piece.offset);
    case IoRequest::Kind::kWrite:
      return files.WriteAt(piece.fd, piece.buffer, piece.offset);
    case IoRequest::Kind::kSync:
      return files.Sync(piece.fd, FileCalls::SyncKind::kData);
  }
  return -EINVAL;
}

void SimulatedIo::FinishPiece(const RequestQueue::Piece& piece, absl::Status status) {
  --under_way_;
  queue_.Finish(piece.tag, std::move(status));
  StartPieces();
  ScheduleCompletions();
}

// Completions come from the loop, never from inside a call.
void SimulatedIo::ScheduleCompletions() {
  for (RequestQueue::Completion& done : queue_.TakeCompletions()) {
    struck_.erase(done.tag);
    ++counters_.requests;
    if (!done.status.ok()) ++counters_.failures;
    ++completion_events_;
    options_.loop->Schedule(0, [this, done = std::move(done)] {
      --completion_events_;
      options_.sink->OnIoComplete(done.tag, done.status);
    });
  }
}

}  // namespace gantry
