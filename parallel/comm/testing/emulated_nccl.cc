#include "parallel/comm/testing/emulated_nccl.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/strings.h"
#include "parallel/comm/in_process.h"

namespace gantry {

EmulatedStream::EmulatedStream() : thread_([this] { Run(); }) {}

EmulatedStream::~EmulatedStream() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void EmulatedStream::Enqueue(std::function<void()> work) {
  MutexLock lock(mutex_);
  queue_.push_back(std::move(work));
  changed_.NotifyAll();
}

bool EmulatedStream::Idle() {
  MutexLock lock(mutex_);
  return queue_.empty() && !working_;
}

void EmulatedStream::Run() {
  for (;;) {
    std::function<void()> work;
    {
      MutexLock lock(mutex_);
      working_ = false;
      while (queue_.empty() && !ending_) changed_.Wait(mutex_);
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.erase(queue_.begin());
      working_ = true;
    }
    work();
  }
}

struct EmulatedNccl::Handle {
  std::unique_ptr<Communicator> communicator;  // null until all ranks came
  NcclUniqueId id{};                           // of those that start
  int rank = 0;
  Mutex mutex;
  bool dead GANTRY_GUARDED_BY(mutex) = false;
  bool in_progress GANTRY_GUARDED_BY(mutex) = false;  // a split
  absl::Status error GANTRY_GUARDED_BY(mutex);

  void Note(absl::Status status) {
    MutexLock lock(mutex);
    error.Update(std::move(status));
  }
};

EmulatedNccl::EmulatedNccl(EmulatedNcclWorld* world) : world_(world) {}
EmulatedNccl::~EmulatedNccl() = default;

EmulatedNccl::Handle& EmulatedNccl::Live(NcclHandle handle) {
  GANTRY_CHECK(handle != nullptr);
  auto& live = *static_cast<Handle*>(handle);
  MutexLock lock(live.mutex);
  GANTRY_CHECK(!live.dead) << "a communicator was used after its end";
  return live;
}

NcclResult EmulatedNccl::GetVersion(int* version) {
  if (Fails()) return NcclResult::kSystemError;
  *version = 22809;
  return NcclResult::kSuccess;
}

NcclResult EmulatedNccl::GetUniqueId(NcclUniqueId* id) {
  if (Fails()) return NcclResult::kSystemError;
  MutexLock lock(world_->mutex);
  const std::string text = StrCat("meeting ", world_->meetings.size());
  id->fill('\0');
  std::copy(text.begin(), text.end(), id->begin());
  world_->meetings[*id];
  return NcclResult::kSuccess;
}

NcclResult EmulatedNccl::CommInitRank(NcclHandle* handle, int size, const NcclUniqueId& id,
                                      int rank) {
  if (Fails()) return NcclResult::kSystemError;
  MutexLock lock(world_->mutex);
  const auto meeting = world_->meetings.find(id);
  if (meeting == world_->meetings.end()) return NcclResult::kInvalidArgument;
  if (meeting->second.ends.empty()) meeting->second.ends = InProcessRanks(size, "emulated");
  ++meeting->second.came;
  handles_.push_back(std::make_unique<Handle>());
  handles_.back()->id = id;
  handles_.back()->rank = rank;
  *handle = handles_.back().get();
  return NcclResult::kInProgress;
}

NcclResult EmulatedNccl::AsyncError(NcclHandle handle, NcclResult* result) {
  if (Fails()) return NcclResult::kSystemError;
  Handle& live = Live(handle);
  if (live.communicator == nullptr) {
    MutexLock lock(world_->mutex);
    EmulatedNcclWorld::Meeting& meeting = world_->meetings[live.id];
    if (meeting.came == static_cast<int>(meeting.ends.size())) {
      live.communicator = std::move(meeting.ends[static_cast<size_t>(live.rank)]);
    }
  }
  MutexLock lock(live.mutex);
  *result = NcclResult::kSuccess;
  if (live.communicator == nullptr || live.in_progress) *result = NcclResult::kInProgress;
  if (!live.error.ok()) *result = NcclResult::kRemoteError;
  return NcclResult::kSuccess;
}

NcclResult EmulatedNccl::CommSplit(NcclHandle handle, int color, int key, NcclHandle* made) {
  if (Fails()) return NcclResult::kSystemError;
  Handle& live = Live(handle);
  Handle* part = nullptr;
  if (color >= 0) {
    handles_.push_back(std::make_unique<Handle>());
    part = handles_.back().get();
    *made = part;
  }
  {
    MutexLock lock(live.mutex);
    live.in_progress = true;
  }
  control_.Enqueue([&live, part, color, key] {
    absl::StatusOr<std::unique_ptr<Communicator>> split =
        live.communicator->Split(color, key, "split");
    if (!split.ok()) live.Note(split.status());
    if (split.ok() && part != nullptr) part->communicator = *std::move(split);
    MutexLock lock(live.mutex);
    live.in_progress = false;
  });
  return NcclResult::kInProgress;
}

NcclResult EmulatedNccl::CommPlace(NcclHandle handle, int* rank, int* size) {
  if (Fails()) return NcclResult::kSystemError;
  Handle& live = Live(handle);
  *rank = live.communicator->rank();
  *size = live.communicator->size();
  return NcclResult::kSuccess;
}

NcclResult EmulatedNccl::CommDestroy(NcclHandle handle) {
  if (Fails()) return NcclResult::kSystemError;
  Handle& live = Live(handle);
  MutexLock lock(live.mutex);
  live.dead = true;
  live.communicator.reset();
  return NcclResult::kSuccess;
}

NcclResult EmulatedNccl::CommAbort(NcclHandle handle) {
  Handle& live = Live(handle);
  if (live.communicator != nullptr) live.communicator->Abort("NCCL");
  MutexLock lock(live.mutex);
  live.dead = true;
  return NcclResult::kSuccess;
}

NcclResult EmulatedNccl::Enqueue(const NcclTarget& target,
                                 std::function<absl::Status(Communicator&)> operation) {
  if (Fails()) return NcclResult::kSystemError;
  Handle& live = Live(target.handle);
  static_cast<EmulatedStream*>(target.stream)->Enqueue([&live, operation = std::move(operation)] {
    live.Note(operation(*live.communicator));
  });
  return NcclResult::kSuccess;
}

NcclResult EmulatedNccl::AllReduce(const CollectiveBuffers& buffers, Reduction reduction,
                                   const NcclTarget& target) {
  return Enqueue(target, [=](Communicator& ranks) { return ranks.AllReduce(buffers, reduction); });
}

NcclResult EmulatedNccl::ReduceScatter(const CollectiveBuffers& buffers, Reduction reduction,
                                       const NcclTarget& target) {
  return Enqueue(target,
                 [=](Communicator& ranks) { return ranks.ReduceScatter(buffers, reduction); });
}

NcclResult EmulatedNccl::AllGather(const CollectiveBuffers& buffers, const NcclTarget& target) {
  return Enqueue(target, [=](Communicator& ranks) { return ranks.AllGather(buffers); });
}

NcclResult EmulatedNccl::Broadcast(const CollectiveBuffers& buffers, int root,
                                   const NcclTarget& target) {
  return Enqueue(target, [=](Communicator& ranks) {
    return ranks.Broadcast(buffers.output, buffers.count, buffers.dtype, root);
  });
}

NcclResult EmulatedNccl::EnqueueMessages(Messages messages) {
  const NcclTarget target = messages.target;
  return Enqueue(target, [messages = std::move(messages)](Communicator& ranks) {
    return ranks.Exchange(messages.outgoing, messages.incoming, messages.dtype);
  });
}

NcclResult EmulatedNccl::Send(const OutgoingMessage& message, DType dtype,
                              const NcclTarget& target) {
  GANTRY_CHECK(group_.has_value()) << "a message outside of a group may block";
  group_->target = target;
  group_->dtype = dtype;
  group_->outgoing.push_back(message);
  return Fails() ? NcclResult::kSystemError : NcclResult::kSuccess;
}

NcclResult EmulatedNccl::Receive(const IncomingMessage& message, DType dtype,
                                 const NcclTarget& target) {
  GANTRY_CHECK(group_.has_value()) << "a message outside of a group may block";
  group_->target = target;
  group_->dtype = dtype;
  group_->incoming.push_back(message);
  return Fails() ? NcclResult::kSystemError : NcclResult::kSuccess;
}

NcclResult EmulatedNccl::GroupStart() {
  GANTRY_CHECK(!group_.has_value()) << "groups do not nest here";
  group_.emplace();
  return Fails() ? NcclResult::kSystemError : NcclResult::kSuccess;
}

NcclResult EmulatedNccl::GroupEnd() {
  GANTRY_CHECK(group_.has_value());
  Messages messages = *std::move(group_);
  group_.reset();
  if (messages.target.handle == nullptr) return NcclResult::kSuccess;
  return EnqueueMessages(std::move(messages));
}

std::string EmulatedNccl::ErrorString(NcclResult result) {
  return StrCat("result ", static_cast<int>(result));
}

std::string EmulatedNccl::LastError(NcclHandle handle) {
  if (handle == nullptr) return "";
  auto& any = *static_cast<Handle*>(handle);
  MutexLock lock(any.mutex);
  return std::string(FromAbsl(any.error.message()));
}

}  // namespace gantry
