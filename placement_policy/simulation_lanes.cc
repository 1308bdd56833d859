// What the lanes carry next, and what follows a transfer.
#include <algorithm>

#include "base/check.h"
#include "placement_policy/simulation.h"

namespace gantry {

bool Simulation::LaneFree(SimulatedLane lane) const {
  const auto busy = [this](SimulatedLane l) { return lanes_[static_cast<size_t>(l)].busy; };
  if (busy(lane)) return false;
  switch (lane) {
    case SimulatedLane::kHostToDevice:
      return !problem_.link_half_duplex || !busy(SimulatedLane::kDeviceToHost);
    case SimulatedLane::kDeviceToHost:
      return !problem_.link_half_duplex || !busy(SimulatedLane::kHostToDevice);
    case SimulatedLane::kFileRead:
      return !problem_.file_half_duplex || !busy(SimulatedLane::kFileWrite);
    case SimulatedLane::kFileWrite:
      return !problem_.file_half_duplex || !busy(SimulatedLane::kFileRead);
    case SimulatedLane::kHostUpdate:
      return true;
  }
  return true;
}

bool Simulation::StartLanes() {
  bool started = false;
  // A fetch may push out what then has to go down.
  if (LaneFree(SimulatedLane::kHostToDevice)) started |= StartFetch();
  if (LaneFree(SimulatedLane::kDeviceToHost)) started |= StartWriteDown();
  if (LaneFree(SimulatedLane::kHostUpdate)) started |= StartUpdate();
  // Reads first, unless buffers are short.
  const bool writes_first = free_buffers_ <= 1;
  if (writes_first && LaneFree(SimulatedLane::kFileWrite)) started |= StartFileWrite();
  if (LaneFree(SimulatedLane::kFileRead)) started |= StartFileRead();
  if (LaneFree(SimulatedLane::kFileWrite)) started |= StartFileWrite();
  return started;
}

void Simulation::Begin(SimulatedLane lane, int64_t bytes, Nanoseconds duration, Lane job) {
  Lane& state = lanes_[static_cast<size_t>(lane)];
  GANTRY_DCHECK(!state.busy);
  state = job;
  state.busy = true;
  state.begin = now_;
  state.end = now_ + duration;
  ++moves_;
  ++running_.moves[static_cast<size_t>(lane)];
  running_.bytes[static_cast<size_t>(lane)] += bytes;
  running_.busy[static_cast<size_t>(lane)] += duration;
}

void Simulation::Finish(SimulatedLane lane) {
  Lane& state = lanes_[static_cast<size_t>(lane)];
  const Lane job = state;
  state.busy = false;
  if (options_.record) {
    events_.push_back({.kind = SimulatedEvent::Kind::kTransfer,
                       .lane = lane,
                       .block = job.block,
                       .update = job.update,
                       .moment = job.time,
                       .begin = job.begin,
                       .end = job.end});
  }
  switch (lane) {
    case SimulatedLane::kHostToDevice:
      return FinishFetch(job.block);
    case SimulatedLane::kDeviceToHost:
      return FinishWriteDown(job);
    case SimulatedLane::kHostUpdate:
      return FinishUpdate(job.update);
    case SimulatedLane::kFileRead:
      return FinishFileRead(job);
    case SimulatedLane::kFileWrite:
      return FinishFileWrite(job);
  }
}

// ------------------------------------------------------------------ blocks come and go

void Simulation::Free(int32_t index) {
  Block& b = block(index);
  GANTRY_DCHECK(b.phase == Phase::kPresent || b.phase == Phase::kLeaving);
  if (b.phase == Phase::kLeaving) leaving_ -= slots(index);
  b.phase = Phase::kAbsent;
  b.dirty = false;
  held_ -= slots(index);
  if (options_.record) drops_.push_back({.block = index, .time = now_});
}

void Simulation::Drop(int32_t index) {
  Block& b = block(index);
  b.wanted = true;
  if (!b.dirty) {
    Free(index);
    Offer(index);
    return;
  }
  b.phase = Phase::kLeaving;
  leaving_ += slots(index);
  if (b.writing) return;  // goes when that is done
  (in_file(index) ? file_write_downs_ : write_downs_).push({b.next_use, index});
}

void Simulation::Offer(int32_t index) {
  const Block& b = block(index);
  if (b.phase != Phase::kAbsent || !b.wanted || b.pending) return;
  if (in_file(index) && staged(staged_of_block(index)).stage != Stage::kBuffer) {
    if (keep_set()) OfferRead(staged_of_block(index), b.next_use, /*urgent=*/false);
    return;
  }
  if (keep_set()) fetches_.push({b.next_use, index});
}

bool Simulation::StartFetch() {
  const int32_t index = keep_set() ? PickFetch() : PickOnDemand();
  if (index < 0) return false;
  Block& b = block(index);
  b.phase = Phase::kFetching;
  held_ += slots(index);
  if (keep_set() && b.next_use > cursor_) profile_->Add(cursor_, b.next_use, -slots(index));
  const int64_t bytes = problem_.block_bytes(index);
  Begin(SimulatedLane::kHostToDevice, bytes, LaneTime(problem_.host_to_device, bytes),
        {.block = index, .time = b.next_use});
  return true;
}

Simulation::Time Simulation::FetchFrom(const Block& b) const {
  if (plan_.fetch_ahead_max.empty()) return 0;
  return b.next_use - plan_.fetch_ahead_max[static_cast<size_t>(b.use)];
}

int32_t Simulation::PickFetch() {
  while (!fetches_.empty()) {
    const auto [time, index] = fetches_.top();
    const Block& b = block(index);
    if (b.phase != Phase::kAbsent || !b.wanted || b.pending || b.next_use != time) {
      fetches_.pop();
      continue;
    }
    if (const Time from = FetchFrom(b); from > cursor_) {
      fetches_.pop();
      early_fetches_.push({from, index});
      continue;
    }
    const int64_t reserve = time > cursor_ ? plan_.write_reserve : 0;
    if (held_ + slots(index) + CreatedNext() + reserve > capacity_now()) return -1;
    if (time > cursor_ && profile_->Min(cursor_, time) < slots(index)) return -1;
    fetches_.pop();
    return index;
  }
  return -1;
}

void Simulation::FinishFetch(int32_t index) {
  Block& b = block(index);
  b.phase = Phase::kPresent;
  b.wanted = false;
  if (in_file(index)) {
    staged(staged_of_block(index)).stage = Stage::kFile;
    ++free_buffers_;
  }
  if (keep_set() || problem_.block_stays(index)) return;
  const bool pinned = residency(index) == Residency::kPinned;
  b.evict_key = plan_.eviction == EvictionOrder::kFurthestNextUse ? b.next_use : -b.last_use;
  if (pinned) b.evict_key -= 2 * kNever;
  evictable_.insert({b.evict_key, index});
}

// ------------------------------------------------------------------ on demand

Residency Simulation::residency(int32_t index) const {
  return plan_.residency.empty() ? Residency::kFloating
                                 : plan_.residency[static_cast<size_t>(index)];
}

int32_t Simulation::PickOnDemand() {
  const Time first = computing_ ? cursor_ + 1 : cursor_;
  const Time last = std::max(first, cursor_ + std::min(plan_.look_ahead, count_ - 1));
  if (computing_ && plan_.look_ahead == 0) return -1;
  for (Time time = first; time <= last; ++time) {
    for (const BlockUse& use : problem_.uses_of(moment_at(time))) {
      const Block& b = block(use.block);
      if (b.phase != Phase::kAbsent || !b.wanted || b.pending || b.next_use != time) continue;
      const int32_t index = staged_of_block(use.block);
      if (in_file(use.block) && staged(index).stage != Stage::kBuffer) {
        if (staged(index).stage != Stage::kReading && !staged(index).wanted) {
          OfferRead(index, time, /*urgent=*/time == cursor_);
        }
        continue;
      }
      return MakeRoom(slots(use.block), time) ? use.block : -1;
    }
  }
  return -1;
}

bool Simulation::MakeRoom(int64_t wanted, Time for_use) {
  const int64_t created = for_use == cursor_ && !computing_ ? 0 : CreatedNext();
  const int64_t limit = capacity_now() - created;
  while (held_ - leaving_ + wanted > limit) {
    const int32_t victim = PickVictim(for_use);
    if (victim < 0) break;
    evictable_.erase({block(victim).evict_key, victim});
    Drop(victim);
  }
  return held_ + wanted <= limit;
}

int32_t Simulation::PickVictim(Time for_use) const {
  const bool demand = !computing_ && for_use == cursor_;
  const Time protect = demand ? cursor_ : cursor_ + plan_.look_ahead;
  for (auto it = evictable_.rbegin(); it != evictable_.rend(); ++it) {
    const Block& b = block(it->second);
    if (b.next_use <= protect) continue;
    if (demand) return it->second;
    if (residency(it->second) == Residency::kPinned) return -1;
    if (plan_.eviction == EvictionOrder::kFurthestNextUse && b.next_use <= for_use) return -1;
    return it->second;
  }
  return -1;
}

// ------------------------------------------------------------------ down, and updates

bool Simulation::StartWriteDown() {
  const auto settle = [this](Tasks& tasks) {
    while (!tasks.empty()) {
      const Block& b = block(tasks.top().second);
      if (b.phase == Phase::kLeaving && !b.writing) return;
      tasks.pop();
    }
  };
  settle(write_downs_);
  settle(file_write_downs_);
  Tasks* from = write_downs_.empty() ? nullptr : &write_downs_;
  if (!file_write_downs_.empty() && free_buffers_ > 0 &&
      (from == nullptr || file_write_downs_.top() < from->top())) {
    from = &file_write_downs_;
  }
  int32_t index = -1;
  Time time = 0;
  if (from != nullptr) {
    std::tie(time, index) = from->top();
    from->pop();
    if (from == &file_write_downs_) --free_buffers_;
  } else {
    while (index < 0 && !early_writes_.empty()) {
      std::tie(time, index) = early_writes_.top();
      const Block& b = block(index);
      // A block that is computed on is offered again after that.
      const bool used = computing_ && b.next_use == cursor_ &&
                        problem_.uses[static_cast<size_t>(b.use)].access != BlockAccess::kRead;
      if (b.phase != Phase::kPresent || !b.dirty || b.writing || b.next_use < time || used)
        index = -1;
      early_writes_.pop();
    }
    if (index < 0) return false;
  }
  block(index).writing = true;
  const int64_t bytes = problem_.block_bytes(index);
  Begin(SimulatedLane::kDeviceToHost, bytes, LaneTime(problem_.device_to_host, bytes),
        {.block = index, .time = time});
  return true;
}

void Simulation::FinishWriteDown(const Lane& job) {
  Block& b = block(job.block);
  b.writing = false;
  b.dirty = false;
  if (b.phase != Phase::kLeaving) return;  // written early: it stays
  Free(job.block);
  const int32_t u = cycle_.update_of[static_cast<size_t>(job.block)];
  if (u >= 0 && !b.wanted) {  // a complete gradient
    ++gradients_down_;
    ReleaseUpdate(u);
    NoteNorm();
    return;
  }
  if (in_file(job.block)) {
    const int32_t index = staged_of_block(job.block);
    staged(index).stage = Stage::kWaiting;
    file_writes_.push(index);
  }
  Offer(job.block);
}

void Simulation::ReleaseUpdate(int32_t u) {
  Update& update = updates_[static_cast<size_t>(u)];
  update.released = true;
  if (staged(u).stage == Stage::kBuffer) {
    OfferUpdate(u);
  } else if (staged(u).stage != Stage::kReading) {
    OfferRead(u, update.deadline, /*urgent=*/true);
  }
}

void Simulation::OfferUpdate(int32_t u) {
  const bool in_memory = problem_.updates[static_cast<size_t>(u)].file_bytes == 0;
  Tasks& tasks = in_memory ? released_ : released_in_buffers_;
  tasks.push({updates_[static_cast<size_t>(u)].deadline, u});
}

bool Simulation::StartUpdate() {
  Tasks* from = released_.empty() ? &released_in_buffers_ : &released_;
  if (from->empty()) return false;
  if (!released_in_buffers_.empty()) {
    // A buffer that is freed lets the files go on.
    const bool short_of_buffers = plan_.free_buffers_first && free_buffers_ <= 1;
    if (short_of_buffers || released_in_buffers_.top() < from->top()) from = &released_in_buffers_;
  }
  const auto [deadline, u] = from->top();
  if (problem_.wait_for_norm && norm_step_ <= updates_[static_cast<size_t>(u)].step) return false;
  from->pop();
  Begin(SimulatedLane::kHostUpdate, 0, problem_.updates[static_cast<size_t>(u)].update,
        {.update = u, .time = deadline});
  return true;
}

void Simulation::FinishUpdate(int32_t u) {
  Update& update = updates_[static_cast<size_t>(u)];
  update.released = false;
  const int32_t parameter = problem_.updates[static_cast<size_t>(u)].parameter;
  if (problem_.updates[static_cast<size_t>(u)].file_bytes > 0) {
    staged(u).stage = Stage::kWaiting;
    file_writes_.push(u);
    OfferStates(u);
  }
  if (!in_file(parameter)) OfferVersion(parameter);
}

void Simulation::OfferVersion(int32_t parameter) {
  if (!block(parameter).pending) return;
  block(parameter).pending = false;
  --pending_;
  Offer(parameter);
}

// ------------------------------------------------------------------ files

// The states for the update's next gradient.
void Simulation::OfferStates(int32_t u) {
  const int64_t complete = problem_.updates[static_cast<size_t>(u)].complete;
  const int64_t step = cursor_ / count_;
  const bool passed = cursor_ % count_ > complete;
  OfferRead(u, (passed ? step + 1 : step) * count_ + complete, /*urgent=*/false);
}

void Simulation::OfferRead(int32_t index, Time key, bool urgent) {
  Staged& s = staged(index);
  if (s.in_queue) TakeFromReads(index);
  reads_wanted_ += s.wanted ? 0 : 1;
  s.wanted = true;
  s.key = key;
  s.urgent = urgent;
  // Otherwise it is written first.
  if (s.stage == Stage::kFile) EnqueueRead(index);
}

void Simulation::EnqueueRead(int32_t index) {
  Staged& s = staged(index);
  s.kind = ReadKindOf(index);
  s.in_queue = true;
  reads_[static_cast<size_t>(s.kind)].insert({!s.urgent, s.key, index});
}

void Simulation::TakeFromReads(int32_t index) {
  Staged& s = staged(index);
  s.in_queue = false;
  reads_[static_cast<size_t>(s.kind)].erase({!s.urgent, s.key, index});
}

Simulation::ReadKind Simulation::ReadKindOf(int32_t index) const {
  const bool urgent = staged(index).urgent;
  if (index >= update_count()) return urgent ? ReadKind::kUrgentBlock : ReadKind::kBlockAhead;
  const bool norm =
      !problem_.wait_for_norm || norm_step_ > updates_[static_cast<size_t>(index)].step;
  return urgent && norm ? ReadKind::kUpdate : ReadKind::kLaterUpdate;
}

// One buffer is left for what frees itself: changed blocks on their way to files, and updates whose
// gradient is there. Otherwise states and blocks that wait for something could take them all.
int64_t Simulation::BuffersNeeded(ReadKind kind) const {
  // Blocks come in the order of their use, and what they push out is on its way already; on demand
  // it is pushed out only when the block is there.
  const bool room_follows = !keep_set() || !file_write_downs_.empty();
  switch (kind) {
    case ReadKind::kUpdate:
      return 1;
    case ReadKind::kLaterUpdate:
      return blocks_in_files_ ? 3 : 2;
    case ReadKind::kUrgentBlock:
      return room_follows ? 2 : 1;
    case ReadKind::kBlockAhead:
      return keep_set() ? 2 : 3;
  }
  return 1;
}

int64_t Simulation::StagedBytes(int32_t index) const {
  if (index < update_count()) return problem_.updates[static_cast<size_t>(index)].file_bytes;
  return problem_.block_bytes(index - update_count());
}

bool Simulation::StartFileRead() {
  const Read* first = nullptr;
  for (int kind = 0; kind < kReadKindCount; ++kind) {
    const std::set<Read>& reads = reads_[static_cast<size_t>(kind)];
    if (reads.empty() || free_buffers_ < BuffersNeeded(static_cast<ReadKind>(kind))) continue;
    if (first == nullptr || *reads.begin() < *first) first = &*reads.begin();
  }
  if (first == nullptr) return false;
  const auto [not_urgent, key, index] = *first;
  TakeFromReads(index);
  staged(index).wanted = false;
  staged(index).stage = Stage::kReading;
  --reads_wanted_;
  --free_buffers_;
  const int64_t bytes = StagedBytes(index);
  Begin(SimulatedLane::kFileRead, bytes, LaneTime(problem_.file_read, bytes),
        {.block = index < update_count() ? -1 : index - update_count(),
         .update = index < update_count() ? index : -1,
         .time = key});
  return true;
}

void Simulation::FinishFileRead(const Lane& job) {
  if (job.update >= 0) {
    staged(job.update).stage = Stage::kBuffer;
    const Update& update = updates_[static_cast<size_t>(job.update)];
    if (update.released) OfferUpdate(job.update);
    return;
  }
  staged(staged_of_block(job.block)).stage = Stage::kBuffer;
  Offer(job.block);
}

bool Simulation::StartFileWrite() {
  if (file_writes_.empty()) return false;
  const int32_t index = file_writes_.front();
  file_writes_.pop();
  int64_t bytes = StagedBytes(index);
  if (index < update_count()) {
    const int32_t parameter = problem_.updates[static_cast<size_t>(index)].parameter;
    if (in_file(parameter)) bytes += problem_.block_bytes(parameter);
  }
  staged(index).stage = Stage::kWriting;
  Begin(SimulatedLane::kFileWrite, bytes, LaneTime(problem_.file_write, bytes),
        {.block = index < update_count() ? -1 : index - update_count(),
         .update = index < update_count() ? index : -1,
         .time = cursor_});
  return true;
}

void Simulation::FinishFileWrite(const Lane& job) {
  const int32_t index = job.update >= 0 ? job.update : staged_of_block(job.block);
  staged(index).stage = Stage::kFile;
  ++free_buffers_;
  if (staged(index).wanted) EnqueueRead(index);
  if (job.update < 0) return;
  const int32_t parameter = problem_.updates[static_cast<size_t>(job.update)].parameter;
  if (in_file(parameter)) OfferVersion(parameter);
}

}  // namespace gantry
