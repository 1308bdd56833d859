// Time, moments, and what follows a use.
#include "placement_policy/simulation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/planned_slack.h"

namespace gantry {

Simulation::Simulation(const MovementProblem& problem, const MovementPlan& plan,
                       const SimulationOptions& options)
    : problem_(problem),
      plan_(plan),
      options_(options),
      cycle_(LinkUses(problem)),
      count_(static_cast<int64_t>(problem.moments.size())) {}

void Simulation::Prepare() {
  blocks_.assign(problem_.block_slots.size(), Block());
  updates_.assign(problem_.updates.size(), Update());
  staged_.assign(problem_.updates.size() + problem_.block_slots.size(), Staged());
  completes_.assign(problem_.moments.size(), {});
  free_buffers_ = problem_.host_buffers;
  blocks_in_files_ = std::ranges::find(problem_.in_file, true) != problem_.in_file.end();
  for (const MovementProblem::Moment& moment : problem_.moments) {
    compute_.push_back(moment.compute);
  }
  if (options_.noise > 0.0) {
    const Random random({.seed = options_.noise_seed, .stream = 0});
    uint64_t index = 0;
    for (Nanoseconds& time : compute_) {
      const double uniform = 2.0 * random.Uniform(index++) - 1.0;
      time = std::llround(static_cast<double>(time) * (1.0 + options_.noise * uniform));
    }
  }
  for (int32_t u = 0; u < update_count(); ++u) {
    const MovementProblem::HostUpdate& update = problem_.updates[static_cast<size_t>(u)];
    completes_[static_cast<size_t>(update.complete)].push_back(u);
    if (update.file_bytes == 0) {
      staged(u).stage = Stage::kBuffer;
    } else {
      OfferStates(u);
    }
  }
  for (int32_t b = 0; b < static_cast<int32_t>(blocks_.size()); ++b) {
    const int32_t first = cycle_.first_use[static_cast<size_t>(b)];
    if (first < 0) continue;
    block(b).use = first;
    block(b).next_use = cycle_.links[static_cast<size_t>(first)].moment;
    block(b).wanted = problem_.uses[static_cast<size_t>(first)].access != BlockAccess::kCreate;
    Offer(b);
  }
}

// A changed block that stays now, but will be dropped before it changes again, is written back when
// the lane has nothing else to do.
void Simulation::PrepareEarlyWrites() {
  early_write_.assign(problem_.uses.size(), false);
  for (size_t use = 0; use < problem_.uses.size(); ++use) {
    if (in_file(problem_.uses[use].block)) continue;  // would need a buffer
    if (!plan_.write_late.empty() && plan_.write_late[use]) continue;
    const auto stays = [&](size_t u) { return cycle_.links[u].gap == Gap::kSame && plan_.keep[u]; };
    size_t at = use;
    while (stays(at)) {
      at = static_cast<size_t>(cycle_.links[at].next);
      if (at == use || problem_.uses[at].access != BlockAccess::kRead) break;
      if (cycle_.links[at].gap == Gap::kSame && !plan_.keep[at]) early_write_[use] = true;
    }
  }
}

absl::StatusOr<SimulatedStep> Simulation::Run() {
  if (count_ == 0) return InvalidArgument("movement problem: there is no moment");
  if (keep_set() && plan_.keep.size() != problem_.uses.size()) {
    return InvalidArgument("movement plan: keep has ", plan_.keep.size(), " entries for ",
                           problem_.uses.size(), " uses");
  }
  if (!plan_.fetch_ahead_max.empty() && plan_.fetch_ahead_max.size() != problem_.uses.size()) {
    return InvalidArgument("movement plan: fetch_ahead_max has ", plan_.fetch_ahead_max.size(),
                           " entries for ", problem_.uses.size(), " uses");
  }
  if (!plan_.write_late.empty() && plan_.write_late.size() != problem_.uses.size()) {
    return InvalidArgument("movement plan: write_late has ", plan_.write_late.size(),
                           " entries for ", problem_.uses.size(), " uses");
  }
  if (!plan_.residency.empty() && plan_.residency.size() != problem_.block_slots.size()) {
    return InvalidArgument("movement plan: residency has ", plan_.residency.size(), " entries for ",
                           problem_.block_slots.size(), " blocks");
  }
  if (keep_set()) {
    slack_ = PlannedSlack(problem_, cycle_, plan_.keep);
    profile_.emplace(slack_);
    const auto least = std::ranges::min_element(slack_);
    if (*least < 0) {
      return InvalidArgument("movement plan: at moment ", least - slack_.begin(), " it keeps ",
                             -*least, " slots more than there are");
    }
    PrepareEarlyWrites();
  }
  Prepare();
  GANTRY_RETURN_IF_ERROR(Loop());
  return Result();
}

absl::Status Simulation::Loop() {
  while (static_cast<int64_t>(totals_.size()) < options_.steps_max && !GivesUp() && Period() == 0) {
    while (StartSomething()) {
    }
    Nanoseconds next = std::numeric_limits<Nanoseconds>::max();
    if (computing_) next = compute_end_;
    for (const Lane& lane : lanes_) {
      if (lane.busy) next = std::min(next, lane.end);
    }
    if (next == std::numeric_limits<Nanoseconds>::max()) return Stuck();
    if (moves_ > options_.moves_max) {
      return ResourceExhausted("simulation: ", moves_, " moves did not end it");
    }
    if (!computing_) NoteWait(next);
    now_ = next;
    for (int lane = 0; lane < kSimulatedLaneCount; ++lane) {
      const Lane& state = lanes_[static_cast<size_t>(lane)];
      if (state.busy && state.end == now_) Finish(static_cast<SimulatedLane>(lane));
    }
    if (computing_ && compute_end_ == now_) EndMoment();
  }
  return absl::OkStatus();
}

// The moment to come waits from now to `end`.
void Simulation::NoteWait(Nanoseconds end) {
  const SimulatedStall cause = StallOf(moment_at(cursor_));
  running_.stalls[static_cast<size_t>(cause)] += end - now_;
  if (!options_.record || end == now_) return;
  const bool goes_on = !waits_.empty() && waits_.back().end == now_ &&
                       waits_.back().moment == cursor_ && waits_.back().cause == cause;
  if (goes_on) {
    waits_.back().end = end;
  } else {
    waits_.push_back({.cause = cause, .moment = cursor_, .begin = now_, .end = end});
  }
}

bool Simulation::StartSomething() {
  const bool moment = !computing_ && TryStartMoment();
  return StartLanes() || moment;
}

int64_t Simulation::CreatedNext() const {
  if (computing_) return 0;
  int64_t created = 0;
  for (const BlockUse& use : problem_.uses_of(moment_at(cursor_))) {
    if (use.access == BlockAccess::kCreate) created += slots(use.block);
  }
  return created;
}

bool Simulation::NormKnown(Time moment) const {
  switch (moment_at(moment).norm) {
    case MovementProblem::Norm::kNotNeeded:
      return true;
    case MovementProblem::Norm::kOfThisStep:
      return norm_step_ > moment / count_;
    case MovementProblem::Norm::kOfLastStep:
      return norm_step_ >= moment / count_;
  }
  return true;
}

bool Simulation::TryStartMoment() {
  const MovementProblem::Moment& moment = moment_at(cursor_);
  if (!NormKnown(cursor_)) return false;
  bool ready = true;
  for (const BlockUse& use : problem_.uses_of(moment)) {
    const Block& b = block(use.block);
    if (use.access == BlockAccess::kCreate) {
      ready = ready && b.phase == Phase::kAbsent;  // the last step's may still be leaving
      continue;
    }
    if (b.phase != Phase::kPresent || (b.writing && use.access != BlockAccess::kRead)) {
      ready = false;
      const int32_t index = staged_of_block(use.block);
      if (b.phase == Phase::kAbsent && staged(index).wanted && !staged(index).urgent) {
        OfferRead(index, cursor_, /*urgent=*/true);
      }
    }
  }
  if (!ready) return false;
  const int64_t created = CreatedNext();
  if (!keep_set() && !MakeRoom(created, cursor_)) return false;
  if (held_ + created > moment.capacity) return false;
  for (const BlockUse& use : problem_.uses_of(moment)) {
    Block& b = block(use.block);
    if (!keep_set()) evictable_.erase({b.evict_key, use.block});
    if (use.access == BlockAccess::kCreate) b.phase = Phase::kPresent;
  }
  held_ += created;
  computing_ = true;
  compute_begin_ = now_;
  compute_end_ = now_ + compute_[static_cast<size_t>(cursor_ % count_)];
  return true;
}

SimulatedStall Simulation::StallOf(const MovementProblem::Moment& moment) const {
  if (!NormKnown(cursor_)) return SimulatedStall::kNorm;
  for (const BlockUse& use : problem_.uses_of(moment)) {
    const Block& b = block(use.block);
    if (use.access == BlockAccess::kCreate || b.phase == Phase::kPresent) continue;
    if (!b.pending) return SimulatedStall::kFetch;
    const int32_t u = cycle_.update_of[static_cast<size_t>(use.block)];
    const bool waits_for_norm =
        problem_.wait_for_norm && norm_step_ <= updates_[static_cast<size_t>(u)].step;
    return waits_for_norm ? SimulatedStall::kNorm : SimulatedStall::kUpdate;
  }
  return SimulatedStall::kRoom;
}

void Simulation::EndMoment() {
  const MovementProblem::Moment& moment = moment_at(cursor_);
  if (options_.record) {
    events_.push_back({.kind = SimulatedEvent::Kind::kMoment,
                       .moment = cursor_,
                       .begin = compute_begin_,
                       .end = now_});
  }
  running_.compute += now_ - compute_begin_;
  computing_ = false;
  for (int64_t i = 0; i < moment.use_count; ++i) {
    AfterUse(static_cast<int32_t>(moment.first_use + i));
  }
  EndGradients(cursor_ % count_);
  if (keep_set()) profile_->Set(cursor_ % count_, slack_[static_cast<size_t>(cursor_ % count_)]);
  ++cursor_;
  while (!early_fetches_.empty() && early_fetches_.top().first <= cursor_) {
    const int32_t index = early_fetches_.top().second;
    early_fetches_.pop();
    Offer(index);
  }
  NoteNorm();
  if (cursor_ % count_ == 0) EndStep();
}

void Simulation::AfterUse(int32_t use) {
  const BlockUse& what = problem_.uses[static_cast<size_t>(use)];
  const UseCycle::Link& link = cycle_.links[static_cast<size_t>(use)];
  Block& b = block(what.block);
  if (what.access == BlockAccess::kWrite || what.access == BlockAccess::kCreate) b.dirty = true;
  if (what.access == BlockAccess::kConsume) b.dirty = false;
  b.last_use = cursor_;
  b.use = link.next;
  b.next_use = cursor_ + link.distance;
  switch (link.gap) {
    case Gap::kNone:
      b.wanted = false;
      // A gradient stays until it is complete.
      if (cycle_.update_of[static_cast<size_t>(what.block)] < 0) Free(what.block);
      return;
    case Gap::kNew:
      b.wanted = true;
      b.pending = true;
      ++pending_;
      Free(what.block);
      return;
    case Gap::kStays:
      return;
    case Gap::kSame:
      break;
  }
  if (!keep_set()) {
    if (residency(what.block) == Residency::kTransient) {
      Drop(what.block);
    } else {
      const bool pinned = residency(what.block) == Residency::kPinned;
      b.evict_key = plan_.eviction == EvictionOrder::kFurthestNextUse ? b.next_use : -b.last_use;
      if (pinned) b.evict_key -= 2 * kNever;
      evictable_.insert({b.evict_key, what.block});
    }
    return;
  }
  if (!plan_.keep[static_cast<size_t>(use)]) {
    Drop(what.block);
  } else if (b.dirty && early_write_[static_cast<size_t>(use)]) {
    early_writes_.push({b.next_use, what.block});
  }
}

void Simulation::EndGradients(int64_t moment) {
  for (const int32_t u : completes_[static_cast<size_t>(moment)]) {
    Update& update = updates_[static_cast<size_t>(u)];
    const MovementProblem::HostUpdate& what = problem_.updates[static_cast<size_t>(u)];
    const int32_t first = cycle_.first_use[static_cast<size_t>(what.parameter)];
    update.step = cursor_ / count_;
    update.deadline =
        first < 0 ? kNever
                  : (update.step + 1) * count_ + cycle_.links[static_cast<size_t>(first)].moment;
    if (plan_.update_order == MovementPlan::UpdateOrder::kArrival) update.deadline = cursor_;
    Block& gradient = block(what.gradient);
    GANTRY_CHECK(gradient.phase == Phase::kPresent);
    gradient.phase = Phase::kLeaving;
    gradient.wanted = false;
    leaving_ += slots(what.gradient);
    write_downs_.push({update.deadline, what.gradient});
  }
}

void Simulation::NoteNorm() {
  const bool computed = cursor_ > norm_step_ * count_ + problem_.norm_moment;
  if (!computed || gradients_down_ < update_count()) return;
  gradients_down_ -= update_count();
  ++norm_step_;
  if (!problem_.wait_for_norm) return;
  // Updates whose gradient is there need not wait any more.
  std::set<Read>& later = reads_[static_cast<size_t>(ReadKind::kLaterUpdate)];
  while (!later.empty() && staged(std::get<int32_t>(*later.begin())).urgent) {
    const int32_t index = std::get<int32_t>(*later.begin());
    TakeFromReads(index);
    EnqueueRead(index);
  }
}

void Simulation::EndStep() {
  running_.end = now_;
  running_.state = {held_, leaving_, pending_, free_buffers_, gradients_down_, reads_wanted_};
  for (const Lane& lane : lanes_) running_.state.push_back(lane.busy ? lane.end - now_ : -1);
  totals_.push_back(std::move(running_));
  running_ = StepTotals();
}

bool Simulation::GivesUp() const {
  const size_t n = totals_.size();
  if (options_.give_up_above == 0 || n < 3) return false;
  const Nanoseconds last = totals_[n - 1].end - totals_[n - 2].end;
  const Nanoseconds before = totals_[n - 2].end - totals_[n - 3].end;
  return std::min(last, before) > options_.give_up_above;
}

// The number of steps after which they repeat; 0 when they have not.
int64_t Simulation::Period() const {
  constexpr size_t kPeriodMax = 6;
  const size_t n = totals_.size();
  const auto duration = [this](size_t step) { return totals_[step].end - totals_[step - 1].end; };
  for (size_t period = 1; period <= kPeriodMax && 2 * period < n; ++period) {
    bool equal = true;
    for (size_t i = n - period; i < n && equal; ++i) {
      const StepTotals& a = totals_[i - period];
      const StepTotals& b = totals_[i];
      equal = duration(i - period) == duration(i) && a.bytes == b.bytes && a.state == b.state;
    }
    if (equal) return static_cast<int64_t>(period);
  }
  return 0;
}

SimulatedStep Simulation::Result() const {
  SimulatedStep result;
  const int64_t period = Period();
  result.steady = period > 0;
  result.steps = static_cast<int64_t>(totals_.size());
  result.moves_total = moves_;
  result.events = events_;
  result.drops = drops_;
  result.waits = waits_;
  const size_t averaged =
      result.steady ? static_cast<size_t>(period) : std::max<size_t>(totals_.size() / 3, 1);
  const size_t first = totals_.size() - averaged;
  const Nanoseconds begin = first == 0 ? 0 : totals_[first - 1].end;
  const auto n = static_cast<int64_t>(averaged);
  result.elapsed = CeilDiv(totals_.back().end - begin, n);
  for (size_t i = first; i < totals_.size(); ++i) {
    const StepTotals& step = totals_[i];
    result.compute += step.compute;
    for (size_t s = 0; s < step.stalls.size(); ++s) result.stalls[s] += step.stalls[s];
    for (size_t l = 0; l < step.busy.size(); ++l) {
      result.busy[l] += step.busy[l];
      result.bytes[l] += step.bytes[l];
      result.moves[l] += step.moves[l];
    }
  }
  result.compute /= n;
  for (Nanoseconds& stall : result.stalls) stall /= n;
  for (size_t l = 0; l < result.busy.size(); ++l) {
    result.busy[l] /= n;
    result.bytes[l] /= n;
    result.moves[l] /= n;
  }
  return result;
}

absl::Status Simulation::Stuck() const {
  const MovementProblem::Moment& moment = moment_at(cursor_);
  std::string waits;
  for (const BlockUse& use : problem_.uses_of(moment)) {
    if (use.access != BlockAccess::kCreate && block(use.block).phase != Phase::kPresent) {
      waits = StrCat(waits, " block ", use.block);
    }
  }
  if (!NormKnown(cursor_)) waits = " the norm";
  if (waits.empty()) waits = StrCat(" room: it has ", moment.capacity, " slots");
  return ResourceExhausted("simulation: moment ", cursor_ % count_, " of step ", cursor_ / count_,
                           " waits for", waits, ", and nothing can move (", held_, " slots held, ",
                           leaving_, " leaving, ", free_buffers_, " host buffers free)");
}

}  // namespace gantry
