#include "parallel/comm/nccl_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclOptions& options, std::string name, int rank, int size)
      : options_(options), name_(std::move(name)), rank_(rank), size_(size) {}
  ~NcclCommunicator() override;

  absl::Status Start(const NcclUniqueId& id);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }

  absl::Status AllReduce(const CollectiveBuffers& buffers, Reduction reduction) override {
    return Enqueue(StrCat("AllReduce (", reduction, ") of ", buffers.count, " x ", buffers.dtype),
                   [&] { return calls().AllReduce(buffers, reduction, target()); });
  }
  absl::Status ReduceScatter(const CollectiveBuffers& buffers, Reduction reduction) override {
    return Enqueue(
        StrCat("ReduceScatter (", reduction, ") of ", buffers.count, " x ", buffers.dtype),
        [&] { return calls().ReduceScatter(buffers, reduction, target()); });
  }
  absl::Status AllGather(const CollectiveBuffers& buffers) override {
    return Enqueue(StrCat("AllGather of ", buffers.count, " x ", buffers.dtype),
                   [&] { return calls().AllGather(buffers, target()); });
  }
  absl::Status Broadcast(std::byte* data, int64_t count, DType dtype, int root) override {
    GANTRY_CHECK(root >= 0 && root < size_) << root << " of " << size_;
    return Enqueue(StrCat("Broadcast from ", root, " of ", count, " x ", dtype), [&] {
      return calls().Broadcast({.input = data, .output = data, .count = count, .dtype = dtype},
                               root, target());
    });
  }
  absl::Status Exchange(std::span<const OutgoingMessage> outgoing,
                        std::span<const IncomingMessage> incoming, DType dtype) override;
  absl::Status Barrier() override;
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      std::string_view name) override;
  absl::Status Synchronize() override;
  void Abort(std::string_view reason) override;

 private:
  NcclCalls& calls() const { return *options_.calls; }
  NcclTarget target() const { return {.handle = handle_, .stream = options_.stream}; }
  // Runs a call and waits until NCCL has taken it.
  absl::Status Enqueue(std::string what, const std::function<NcclResult()>& call);
  NcclResult ExchangeCalls(std::span<const OutgoingMessage> outgoing,
                           std::span<const IncomingMessage> incoming, DType dtype) const;
  // Polls `done`; an error or the deadline fails the communicator.
  absl::Status WaitFor(const std::string& what, const std::function<absl::StatusOr<bool>()>& done);
  // Whether NCCL has no call in progress.
  absl::StatusOr<bool> Settled();
  absl::Status ErrorOf(NcclResult result);
  std::string Place(const std::string& what) const;
  // Aborts, remembers the first error, and returns it.
  absl::Status Fail(absl::Status status);
  absl::Status failure();

  NcclOptions options_;
  std::string name_;
  int rank_;
  int size_;
  NcclHandle handle_ = nullptr;
  int64_t operations_ = 0;
  std::string last_ = "nothing";  // the newest operation
  // Abort may come from any thread.
  Mutex mutex_;
  bool aborted_ GANTRY_GUARDED_BY(mutex_) = false;
  absl::Status failure_ GANTRY_GUARDED_BY(mutex_);
};

NcclCommunicator::~NcclCommunicator() {
  MutexLock lock(mutex_);
  if (handle_ == nullptr || aborted_) return;
  calls().CommDestroy(handle_);
}

std::string NcclCommunicator::Place(const std::string& what) const {
  return StrCat("group '", name_, "', rank ", rank_, " of ", size_, ": ", what);
}

absl::Status NcclCommunicator::ErrorOf(NcclResult result) {
  const std::string more = calls().LastError(handle_);
  return Unavailable("NCCL: ", calls().ErrorString(result), more.empty() ? "" : " (", more,
                     more.empty() ? "" : ")");
}

absl::Status NcclCommunicator::failure() {
  MutexLock lock(mutex_);
  return failure_;
}

absl::Status NcclCommunicator::Fail(absl::Status status) {
  MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = std::move(status);
  if (!aborted_ && handle_ != nullptr) {
    aborted_ = true;
    calls().CommAbort(handle_);
  }
  return failure_;
}

void NcclCommunicator::Abort(std::string_view reason) {
  Fail(MakeStatus(absl::StatusCode::kAborted, "group '", name_, "' was aborted: ", reason))
      .IgnoreError();
}

absl::StatusOr<bool> NcclCommunicator::Settled() {
  MutexLock lock(mutex_);
  if (!failure_.ok()) return failure_;
  NcclResult state = NcclResult::kSuccess;
  const NcclResult called = calls().AsyncError(handle_, &state);
  if (called != NcclResult::kSuccess) return ErrorOf(called);
  if (state == NcclResult::kInProgress) return false;
  if (state != NcclResult::kSuccess) return ErrorOf(state);
  return true;
}

absl::Status NcclCommunicator::WaitFor(const std::string& what,
                                       const std::function<absl::StatusOr<bool>()>& done) {
  const Nanoseconds deadline = options_.clock->Now() + options_.timeout;
  for (;;) {
    const absl::StatusOr<bool> finished = done();
    if (!finished.ok()) {
      return Fail(MakeStatus(finished.status().code(), Place(what), ": ",
                             FromAbsl(finished.status().message())));
    }
    if (*finished) return absl::OkStatus();
    const Nanoseconds now = options_.clock->Now();
    if (now >= deadline) {
      return Fail(MakeStatus(absl::StatusCode::kDeadlineExceeded, Place(what),
                             " did not finish within ",
                             static_cast<double>(options_.timeout) * 1e-9,
                             " s: a rank did not come, or died; the group was aborted"));
    }
    options_.clock->SleepUntil(std::min(deadline, now + options_.poll_every));
  }
}

absl::Status NcclCommunicator::Start(const NcclUniqueId& id) {
  const NcclResult result = calls().CommInitRank(&handle_, size_, id, rank_);
  if (result != NcclResult::kSuccess && result != NcclResult::kInProgress) {
    return Fail(Unavailable(Place("starting"), ": ", FromAbsl(ErrorOf(result).message())));
  }
  return WaitFor("starting", [this] { return Settled(); });
}

absl::Status NcclCommunicator::Enqueue(std::string what, const std::function<NcclResult()>& call) {
  last_ = StrCat("operation ", operations_++, ", ", what);
  NcclResult result = NcclResult::kSuccess;
  {
    // Not while another thread aborts. The call does not block.
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    result = call();
  }
  if (result != NcclResult::kSuccess && result != NcclResult::kInProgress) {
    return Fail(Unavailable(Place(last_), ": ", FromAbsl(ErrorOf(result).message())));
  }
  return WaitFor(last_, [this] { return Settled(); });
}

NcclResult NcclCommunicator::ExchangeCalls(std::span<const OutgoingMessage> outgoing,
                                           std::span<const IncomingMessage> incoming,
                                           DType dtype) const {
  NcclResult first = calls().GroupStart();
  const auto keep = [&first](NcclResult result) {
    if (first == NcclResult::kSuccess || first == NcclResult::kInProgress) first = result;
  };
  for (const OutgoingMessage& message : outgoing) keep(calls().Send(message, dtype, target()));
  for (const IncomingMessage& message : incoming) keep(calls().Receive(message, dtype, target()));
  // Also after an error: a group that was begun must end.
  keep(calls().GroupEnd());
  return first;
}

absl::Status NcclCommunicator::Exchange(std::span<const OutgoingMessage> outgoing,
                                        std::span<const IncomingMessage> incoming, DType dtype) {
  const auto check = [this](int peer) -> absl::Status {
    if (peer >= 0 && peer < size_) return absl::OkStatus();
    return Fail(
        InvalidArgument(Place("an exchange"), " names rank ", peer, ", which does not exist"));
  };
  for (const OutgoingMessage& message : outgoing) GANTRY_RETURN_IF_ERROR(check(message.peer));
  for (const IncomingMessage& message : incoming) GANTRY_RETURN_IF_ERROR(check(message.peer));
  return Enqueue(StrCat("Exchange of ", outgoing.size(), " and ", incoming.size(), " messages"),
                 [&] { return ExchangeCalls(outgoing, incoming, dtype); });
}

absl::Status NcclCommunicator::Barrier() {
  GANTRY_RETURN_IF_ERROR(Enqueue("Barrier", [this] {
    return calls().AllReduce({.input = options_.scratch, .output = options_.scratch, .count = 1},
                             Reduction::kMax, target());
  }));
  return Synchronize();
}

absl::Status NcclCommunicator::Synchronize() {
  GANTRY_RETURN_IF_ERROR(failure());
  return WaitFor(StrCat("up to ", last_), [this]() -> absl::StatusOr<bool> {
    GANTRY_ASSIGN_OR_RETURN(const bool settled, Settled());
    if (!settled) return false;
    return options_.stream_done();
  });
}

absl::StatusOr<std::unique_ptr<Communicator>> NcclCommunicator::Split(int color, int key,
                                                                      std::string_view name) {
  // Its rank and size are those of the ranks that have the color, which only they can tell.
  NcclHandle made = nullptr;
  GANTRY_RETURN_IF_ERROR(Enqueue(StrCat("Split '", name, "'"),
                                 [&] { return calls().CommSplit(handle_, color, key, &made); }));
  if (made == nullptr) return nullptr;
  int rank = 0;
  int size = 0;
  const NcclResult result = calls().CommPlace(made, &rank, &size);
  if (result != NcclResult::kSuccess) return Fail(ErrorOf(result));
  auto part = std::make_unique<NcclCommunicator>(options_, std::string(name), rank, size);
  part->handle_ = made;
  return part;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> CreateNcclCommunicator(Communicator& bootstrap,
                                                                     const NcclOptions& options) {
  GANTRY_CHECK(options.calls != nullptr && options.clock != nullptr && options.stream_done);
  NcclUniqueId id{};
  // What became of making the id goes to all, so that nobody waits for ranks that gave up.
  float made = 1.0F;
  if (bootstrap.rank() == 0) {
    made = options.calls->GetUniqueId(&id) == NcclResult::kSuccess ? 1.0F : 0.0F;
  }
  GANTRY_RETURN_IF_ERROR(
      bootstrap.Broadcast(reinterpret_cast<std::byte*>(&made), 1, DType::kF32, 0));
  if (made != 1.0F) {
    return Unavailable("group '", bootstrap.name(), "': NCCL gave no unique id on rank 0");
  }
  static_assert(sizeof(id) % sizeof(float) == 0);
  GANTRY_RETURN_IF_ERROR(bootstrap.Broadcast(reinterpret_cast<std::byte*>(id.data()),
                                             sizeof(id) / sizeof(float), DType::kF32, 0));
  auto made_communicator = std::make_unique<NcclCommunicator>(options, bootstrap.name(),
                                                              bootstrap.rank(), bootstrap.size());
  GANTRY_RETURN_IF_ERROR(made_communicator->Start(id));
  return made_communicator;
}

}  // namespace gantry
