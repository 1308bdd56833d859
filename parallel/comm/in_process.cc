#include "parallel/comm/in_process.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "parallel/comm/reduce.h"

namespace gantry {
namespace {

enum class Kind : uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kBarrier, kSplit };

std::string_view Name(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return "AllReduce";
    case Kind::kReduceScatter:
      return "ReduceScatter";
    case Kind::kAllGather:
      return "AllGather";
    case Kind::kBroadcast:
      return "Broadcast";
    case Kind::kBarrier:
      return "Barrier";
    case Kind::kSplit:
      return "Split";
  }
  return "unknown";
}

// What one rank asked for.
struct Operation {
  Kind kind = Kind::kBarrier;
  CollectiveBuffers buffers = {};
  Reduction reduction = Reduction::kSum;
  int root = 0;
  int color = 0;
  int key = 0;
  std::string_view name = {};  // of the groups that a split makes
};

// What must be equal on all ranks.
std::string Describe(const Operation& operation) {
  switch (operation.kind) {
    case Kind::kBarrier:
      return "Barrier";
    case Kind::kSplit:
      return StrCat("Split '", operation.name, "'");
    case Kind::kBroadcast:
      return StrCat("Broadcast from ", operation.root, " of ", operation.buffers.count, " x ",
                    operation.buffers.dtype);
    case Kind::kAllGather:
      return StrCat("AllGather of ", operation.buffers.count, " x ", operation.buffers.dtype);
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
      break;
  }
  return StrCat(Name(operation.kind), " (", operation.reduction, ") of ", operation.buffers.count,
                " x ", operation.buffers.dtype);
}

// One rank's Exchange, on its stack.
struct Exchanging {
  int64_t remaining = 0;  // messages
  bool waiting = false;
};

struct Message {
  const std::byte* source = nullptr;  // of a sender
  std::byte* destination = nullptr;   // of a receiver
  int64_t count = 0;
  DType dtype = DType::kF32;
  Exchanging* exchange = nullptr;
};

struct Group;

// Of all ranks: who is there, who waits, and the first error, which ends everything.
struct World {
  Mutex mutex;
  CondVar changed;
  int live GANTRY_GUARDED_BY(mutex) = 0;
  int blocked GANTRY_GUARDED_BY(mutex) = 0;
  absl::Status failure GANTRY_GUARDED_BY(mutex);
  // By world rank: what it waits for; "left"; empty while it runs.
  std::vector<std::string> states GANTRY_GUARDED_BY(mutex);

  // The error that all get: this one, or an earlier one.
  const absl::Status& Fail(absl::Status status) GANTRY_REQUIRES(mutex) {
    if (failure.ok()) failure = std::move(status);
    changed.NotifyAll();
    return failure;
  }
  void CheckProgress() GANTRY_REQUIRES(mutex) {
    if (!failure.ok() || live == 0 || blocked < live) return;
    std::string text = "no rank can go on:";
    for (size_t rank = 0; rank < states.size(); ++rank) {
      text += StrCat(rank == 0 ? " " : "; ", "rank ", rank, " ",
                     states[rank].empty() ? "runs" : states[rank]);
    }
    Fail(Unavailable(text));
  }
};

// Guarded by the world's mutex, except that the last rank to come executes without it, while all
// others wait.
struct Group {
  std::string name;
  std::vector<int> members;  // world ranks
  std::vector<bool> left;
  std::vector<const Operation*> posted;
  int arrived = 0;
  bool executing = false;
  int64_t done = 0;                           // operations
  std::vector<std::shared_ptr<Group>> split;  // of the split just done: by rank, null for none
  // By sender and receiver: sender * size + receiver.
  std::vector<std::deque<Message>> outgoing;
  std::vector<std::deque<Message>> incoming;

  int size() const { return static_cast<int>(members.size()); }
};

std::shared_ptr<Group> MakeGroup(std::string name, std::vector<int> members) {
  auto group = std::make_shared<Group>();
  const size_t size = members.size();
  group->name = std::move(name);
  group->members = std::move(members);
  group->left.assign(size, false);
  group->posted.assign(size, nullptr);
  group->outgoing.resize(size * size);
  group->incoming.resize(size * size);
  return group;
}

absl::Status CheckAgree(const Group& group) {
  const std::string first = Describe(*group.posted[0]);
  for (int rank = 1; rank < group.size(); ++rank) {
    const std::string other = Describe(*group.posted[static_cast<size_t>(rank)]);
    if (other == first) continue;
    return InvalidArgument("operation ", group.done, " of group '", group.name, "': rank 0 called ",
                           first, ", rank ", rank, " called ", other);
  }
  return absl::OkStatus();
}

void CopyTo(std::byte* to, const std::byte* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void RunReduction(const Group& group) {
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  for (const Operation* operation : group.posted) {
    inputs.push_back(operation->buffers.input);
    outputs.push_back(operation->buffers.output);
  }
  const Operation& first = *group.posted[0];
  ReduceArgs args{.inputs = inputs,
                  .outputs = outputs,
                  .first = 0,
                  .count = first.buffers.count,
                  .dtype = first.buffers.dtype};
  if (first.kind == Kind::kAllReduce) return Reduce(args, first.reduction);
  const int64_t part = args.count * SizeOf(args.dtype);
  for (int rank = 0; rank < group.size(); ++rank) {
    for (std::byte const*& input : inputs) input += rank == 0 ? 0 : part;
    args.outputs = std::span(outputs).subspan(static_cast<size_t>(rank), 1);
    Reduce(args, first.reduction);
  }
}

void RunGather(const Group& group) {
  for (const Operation* to : group.posted) {
    const int64_t part = to->buffers.count * SizeOf(to->buffers.dtype);
    for (int rank = 0; rank < group.size(); ++rank) {
      CopyTo(to->buffers.output + rank * part,
             group.posted[static_cast<size_t>(rank)]->buffers.input, part);
    }
  }
}

void RunBroadcast(const Group& group) {
  const Operation& from = *group.posted[static_cast<size_t>(group.posted[0]->root)];
  for (const Operation* to : group.posted) {
    CopyTo(to->buffers.output, from.buffers.input, from.buffers.count * SizeOf(from.buffers.dtype));
  }
}

void RunSplit(Group& group) {
  const auto size = static_cast<size_t>(group.size());
  group.split.assign(size, nullptr);
  std::vector<size_t> order(size);
  for (size_t rank = 0; rank < size; ++rank) order[rank] = rank;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(group.posted[a]->color, group.posted[a]->key) <
           std::pair(group.posted[b]->color, group.posted[b]->key);
  });
  for (size_t first = 0; first < size;) {
    const Operation& one = *group.posted[order[first]];
    size_t last = first;
    std::vector<int> members;
    while (last < size && group.posted[order[last]]->color == one.color) {
      members.push_back(group.members[order[last++]]);
    }
    if (one.color >= 0) {
      const auto made = MakeGroup(std::string(one.name), std::move(members));
      for (size_t i = first; i < last; ++i) group.split[order[i]] = made;
    }
    first = last;
  }
}

absl::Status Execute(Group& group) {
  const absl::Status agreed = CheckAgree(group);
  if (!agreed.ok()) return agreed;
  switch (group.posted[0]->kind) {
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
      RunReduction(group);
      break;
    case Kind::kAllGather:
      RunGather(group);
      break;
    case Kind::kBroadcast:
      RunBroadcast(group);
      break;
    case Kind::kSplit:
      RunSplit(group);
      break;
    case Kind::kBarrier:
      break;
  }
  return absl::OkStatus();
}

class InProcessCommunicator final : public Communicator {
 public:
  InProcessCommunicator(std::shared_ptr<World> world, std::shared_ptr<Group> group, int rank,
                        bool is_world)
      : world_(std::move(world)), group_(std::move(group)), rank_(rank), is_world_(is_world) {}
  ~InProcessCommunicator() override { Leave(); }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  const std::string& name() const override { return group_->name; }

  absl::Status AllReduce(const CollectiveBuffers& buffers, Reduction reduction) override {
    return Run({.kind = Kind::kAllReduce, .buffers = buffers, .reduction = reduction});
  }
  absl::Status ReduceScatter(const CollectiveBuffers& buffers, Reduction reduction) override {
    return Run({.kind = Kind::kReduceScatter, .buffers = buffers, .reduction = reduction});
  }
  absl::Status AllGather(const CollectiveBuffers& buffers) override {
    return Run({.kind = Kind::kAllGather, .buffers = buffers});
  }
  absl::Status Broadcast(std::byte* data, int64_t count, DType dtype, int root) override {
    GANTRY_CHECK(root >= 0 && root < size()) << root << " of " << size();
    return Run({.kind = Kind::kBroadcast,
                .buffers = {.input = data, .output = data, .count = count, .dtype = dtype},
                .root = root});
  }
  absl::Status Barrier() override { return Run({.kind = Kind::kBarrier}); }
  absl::Status Exchange(std::span<const OutgoingMessage> outgoing,
                        std::span<const IncomingMessage> incoming, DType dtype) override;
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      std::string_view name) override;
  absl::Status Synchronize() override {
    MutexLock lock(world_->mutex);
    return world_->failure;
  }
  void Abort(std::string_view reason) override {
    MutexLock lock(world_->mutex);
    world_->Fail(
        MakeStatus(absl::StatusCode::kAborted, "group '", group_->name, "' was aborted: ", reason));
  }

 private:
  int world_rank() const { return group_->members[static_cast<size_t>(rank_)]; }
  absl::Status Run(const Operation& operation);
  absl::Status CheckPeer(int peer, int64_t count) GANTRY_REQUIRES(world_->mutex);
  void Match(int sender, int receiver) GANTRY_REQUIRES(world_->mutex);
  void Leave();

  size_t Pair(int sender, int receiver) const {
    return static_cast<size_t>(sender * size() + receiver);
  }
  void Block(std::string what) GANTRY_REQUIRES(world_->mutex) {
    ++world_->blocked;
    world_->states[static_cast<size_t>(world_rank())] = std::move(what);
    world_->CheckProgress();
  }
  // Called by whoever lets `rank` go on, so that nobody counts it as waiting any more.
  void Unblock(int rank) GANTRY_REQUIRES(world_->mutex) {
    --world_->blocked;
    world_->states[static_cast<size_t>(group_->members[static_cast<size_t>(rank)])].clear();
  }

  std::shared_ptr<World> world_;  // shared: by all ranks
  std::shared_ptr<Group> group_;  // shared: by its ranks
  int rank_;
  bool is_world_;
};

absl::Status InProcessCommunicator::Run(const Operation& operation) {
  GANTRY_CHECK(operation.buffers.count >= 0) << operation.buffers.count;
  Group& group = *group_;
  MutexLock lock(world_->mutex);
  if (!world_->failure.ok()) return world_->failure;
  for (int peer = 0; peer < size(); ++peer) {
    if (!group.left[static_cast<size_t>(peer)]) continue;
    return world_->Fail(
        Unavailable("group '", group.name, "': rank ", peer, " left before ", Describe(operation)));
  }
  group.posted[static_cast<size_t>(rank_)] = &operation;
  if (++group.arrived < size()) {
    const int64_t number = group.done;
    Block(
        StrCat("waits in ", Describe(operation), ", operation ", number, " of '", group.name, "'"));
    while (group.done == number && (world_->failure.ok() || group.executing)) {
      world_->changed.Wait(world_->mutex);
    }
    return group.done == number ? world_->failure : absl::OkStatus();
  }
  group.executing = true;
  world_->mutex.Unlock();
  absl::Status status = Execute(group);
  world_->mutex.Lock();
  group.executing = false;
  group.arrived = 0;
  if (!status.ok()) return world_->Fail(std::move(status));
  ++group.done;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_) Unblock(peer);
  }
  world_->changed.NotifyAll();
  return absl::OkStatus();
}

absl::Status InProcessCommunicator::CheckPeer(int peer, int64_t count) {
  GANTRY_CHECK(count >= 0) << count;
  if (peer < 0 || peer >= size()) {
    return world_->Fail(InvalidArgument("group '", group_->name, "': rank ", rank_,
                                        " exchanges with rank ", peer, " of ", size()));
  }
  if (group_->left[static_cast<size_t>(peer)]) {
    return world_->Fail(Unavailable("group '", group_->name, "': rank ", rank_,
                                    " exchanges with rank ", peer, ", which left"));
  }
  return absl::OkStatus();
}

void InProcessCommunicator::Match(int sender, int receiver) {
  std::deque<Message>& sent = group_->outgoing[Pair(sender, receiver)];
  std::deque<Message>& wanted = group_->incoming[Pair(sender, receiver)];
  while (!sent.empty() && !wanted.empty()) {
    const Message from = sent.front();
    const Message to = wanted.front();
    sent.pop_front();
    wanted.pop_front();
    if (from.count != to.count || from.dtype != to.dtype) {
      world_->Fail(InvalidArgument("group '", group_->name, "': rank ", sender, " sends ",
                                   from.count, " x ", from.dtype, ", rank ", receiver, " receives ",
                                   to.count, " x ", to.dtype));
      return;
    }
    CopyTo(to.destination, from.source, from.count * SizeOf(from.dtype));
    const std::pair<Exchanging*, int> ends[] = {{from.exchange, sender}, {to.exchange, receiver}};
    for (const auto& [exchange, rank] : ends) {
      if (--exchange->remaining > 0 || !exchange->waiting) continue;
      exchange->waiting = false;
      Unblock(rank);
      world_->changed.NotifyAll();
    }
  }
}

absl::Status InProcessCommunicator::Exchange(std::span<const OutgoingMessage> outgoing,
                                             std::span<const IncomingMessage> incoming,
                                             DType dtype) {
  MutexLock lock(world_->mutex);
  if (!world_->failure.ok()) return world_->failure;
  absl::Status status;
  for (const OutgoingMessage& message : outgoing)
    status.Update(CheckPeer(message.peer, message.count));
  for (const IncomingMessage& message : incoming)
    status.Update(CheckPeer(message.peer, message.count));
  if (!status.ok()) return status;
  Exchanging exchange{.remaining = static_cast<int64_t>(outgoing.size() + incoming.size())};
  for (const OutgoingMessage& message : outgoing) {
    group_->outgoing[Pair(rank_, message.peer)].push_back(
        {.source = message.data, .count = message.count, .dtype = dtype, .exchange = &exchange});
  }
  for (const IncomingMessage& message : incoming) {
    group_->incoming[Pair(message.peer, rank_)].push_back({.destination = message.data,
                                                           .count = message.count,
                                                           .dtype = dtype,
                                                           .exchange = &exchange});
  }
  for (int peer = 0; peer < size(); ++peer) {
    Match(rank_, peer);
    if (peer != rank_) Match(peer, rank_);
  }
  if (exchange.remaining > 0 && world_->failure.ok()) {
    exchange.waiting = true;
    Block(StrCat("waits for ", exchange.remaining, " messages in '", group_->name, "'"));
  }
  while (exchange.remaining > 0 && world_->failure.ok()) world_->changed.Wait(world_->mutex);
  return exchange.remaining > 0 ? world_->failure : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Communicator>> InProcessCommunicator::Split(int color, int key,
                                                                           std::string_view name) {
  const absl::Status status = Run({.kind = Kind::kSplit, .color = color, .key = key, .name = name});
  if (!status.ok()) return status;
  std::shared_ptr<Group> made;
  {
    MutexLock lock(world_->mutex);
    made = std::move(group_->split[static_cast<size_t>(rank_)]);
  }
  if (made == nullptr) return nullptr;
  const auto place = std::find(made->members.begin(), made->members.end(), world_rank());
  const int rank = static_cast<int>(place - made->members.begin());
  return std::make_unique<InProcessCommunicator>(world_, std::move(made), rank, false);
}

void InProcessCommunicator::Leave() {
  MutexLock lock(world_->mutex);
  group_->left[static_cast<size_t>(rank_)] = true;
  bool awaited = group_->arrived > 0;
  for (int peer = 0; peer < size(); ++peer) {
    awaited = awaited || !group_->outgoing[Pair(peer, rank_)].empty() ||
              !group_->incoming[Pair(rank_, peer)].empty();
  }
  if (awaited && world_->failure.ok()) {
    world_->Fail(
        Unavailable("group '", group_->name, "': rank ", rank_, " left while others wait for it"));
  }
  if (!is_world_) return;
  --world_->live;
  world_->states[static_cast<size_t>(world_rank())] = "left";
  world_->CheckProgress();
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> InProcessRanks(int size, std::string name) {
  GANTRY_CHECK(size >= 1) << size;
  auto world = std::make_shared<World>();
  std::vector<int> members;
  for (int rank = 0; rank < size; ++rank) members.push_back(rank);
  {
    MutexLock lock(world->mutex);
    world->live = size;
    world->states.resize(static_cast<size_t>(size));
  }
  const auto group = MakeGroup(std::move(name), std::move(members));
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<InProcessCommunicator>(world, group, rank, true));
  }
  return ranks;
}

}  // namespace gantry
