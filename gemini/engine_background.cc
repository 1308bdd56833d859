// What goes on behind the compute thread: taking completions, starting moves, running updates. On
// two threads; or, with an event loop, on the caller's alone, whenever it calls or would wait.
#include <optional>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "gemini/engine_impl.h"
#include "placement_policy/movement_problem.h"

namespace gantry {
namespace {

// In a simulation an update begins and ends within this much virtual time of when it could run.
constexpr Nanoseconds kSimulatedUpdateMax = 100'000;

// In traces.
std::string_view NameOf(UpdateQueue::Job::Kind kind) {
  switch (kind) {
    case UpdateQueue::Job::Kind::kNorm:
      return "norm";
    case UpdateQueue::Job::Kind::kObserve:
    case UpdateQueue::Job::Kind::kMeasure:
      return "factors";
    case UpdateQueue::Job::Kind::kUpdate:
    case UpdateQueue::Job::Kind::kRestore:
      break;
  }
  return "update";
}

}  // namespace

absl::Status EngineImpl::StartBackground() {
  if (options_.event_loop != nullptr) return absl::OkStatus();
  try {
    // thread: completions must be taken while the compute thread computes.
    mover_thread_ = std::thread([this] { MoverLoop(); });
    // thread: updates run beside the backward pass and the next forward pass.
    update_thread_ = std::thread([this] { UpdateLoop(); });
  } catch (const std::system_error& error) {
    StopBackground();
    return Unavailable("the engine's threads could not be started: ", error.what());
  }
  return absl::OkStatus();
}

void EngineImpl::StopBackground() {
  if (simulated_self_ != nullptr) *simulated_self_ = nullptr;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
    update_work_.NotifyAll();
  }
  if (update_thread_.joinable()) update_thread_.join();
  if (transfers_ != nullptr) transfers_->Wake();
  if (mover_thread_.joinable()) mover_thread_.join();
  stopping_ = false;  // nobody is left who reads it, and Seal may be called again
  // An update that the event loop holds is this engine's.
  while (simulated_job_) GANTRY_CHECK(options_.event_loop->RunNext());
}

void EngineImpl::Fail(const absl::Status& status) {
  if (failure_.ok()) failure_ = status;
  changed_.NotifyAll();
  update_work_.NotifyAll();
}

void EngineImpl::TakeCompletions(std::span<const TransferCompletion> completions) {
  for (const TransferCompletion& completion : completions) {
    const absl::Status finished = mover_->OnCompletion(completion);
    if (!finished.ok()) Fail(finished);
  }
  static_cast<void>(ForgetUsedUp());  // an error is kept
}

void EngineImpl::MoverLoop() {
  while (true) {
    const std::vector<TransferCompletion> completions = transfers_->WaitAndPoll();
    MutexLock lock(mutex_);
    TakeCompletions(completions);
    if (stopping_) return;
    if (!failure_.ok()) continue;
    // An error is kept and wakes everybody.
    static_cast<void>(PumpLocked());
    changed_.NotifyAll();
  }
}

void EngineImpl::UpdateLoop() {
  mutex_.Lock();
  while (!stopping_) {
    const std::optional<UpdateQueue::Job> job = TakeJob();
    if (!job.has_value()) {
      update_work_.Wait(mutex_);
      continue;
    }
    mutex_.Unlock();
    const Nanoseconds time = RunJob(*job);
    mutex_.Lock();
    FinishJob(*job, time);
  }
  mutex_.Unlock();
}

std::optional<UpdateQueue::Job> EngineImpl::TakeJob() {
  if (!failure_.ok()) return std::nullopt;
  absl::StatusOr<std::optional<UpdateQueue::Job>> job = updates_->TakeJob();
  if (job.ok()) return *job;
  Fail(job.status());
  return std::nullopt;
}

Nanoseconds EngineImpl::RunJob(const UpdateQueue::Job& job) {
  const Nanoseconds begin = options_.clock->Now();
  updates_->RunJob(job);
  const Nanoseconds end = options_.clock->Now();
  if (options_.trace_sink != nullptr) {
    options_.trace_sink->Slice("update", StrCat(NameOf(job.kind), " of ", job.chunk), begin, end);
  }
  return end - begin;
}

void EngineImpl::FinishJob(const UpdateQueue::Job& job, Nanoseconds time) {
  update_busy_ += time;
  if (job.kind == UpdateQueue::Job::Kind::kUpdate) update_times_->Add(job.chunk.value(), time);
  absl::Status finished = updates_->FinishJob(job);
  if (finished.ok() && failure_.ok()) finished = PumpLocked();
  if (!finished.ok()) Fail(finished);
  trace_.Memory(*manager_);
  changed_.NotifyAll();
}

void EngineImpl::WakeUpdates() {
  if (!updates_->HasRunnableJob()) return;
  if (options_.event_loop == nullptr) {
    update_work_.NotifyAll();
    return;
  }
  if (simulated_job_) return;
  const std::optional<UpdateQueue::Job> job = TakeJob();
  if (!job.has_value()) return;
  simulated_job_ = true;
  const Nanoseconds time = SimulatedTime(*job);
  options_.event_loop->Schedule(time, [this, job, time] {
    static_cast<void>(RunJob(*job));
    MutexLock lock(mutex_);
    simulated_job_ = false;
    FinishJob(*job, time);
  });
}

Nanoseconds EngineImpl::SimulatedTime(const UpdateQueue::Job& job) const {
  const int64_t rate = options_.simulated_update_bytes_per_second;
  if (rate == 0) return options_.event_loop->Draw(kSimulatedUpdateMax);
  const auto slots = [&](StateKind kind) {
    const BlockId id{kind, job.chunk};
    return layout_->HasBlock(id) ? layout_->slots_of(id) : int64_t{0};
  };
  int64_t moved = slots(StateKind::kGradient);
  if (job.kind == UpdateQueue::Job::Kind::kNorm) return 0;  // reads what has just arrived
  for (const StateKind kind : {StateKind::kMaster, StateKind::kMomentum, StateKind::kVariance}) {
    moved += 2 * slots(kind);
  }
  moved += slots(StateKind::kParameter);
  return LaneTime({.bytes_per_second = rate}, moved * layout_->slot_bytes().count());
}

void EngineImpl::OnSimulatedCompletion() {
  MutexLock lock(mutex_);
  TakeCompletions(transfers_->Poll());
  if (failure_.ok()) static_cast<void>(PumpLocked());  // the next call returns an error
  changed_.NotifyAll();
}

void EngineImpl::Overlap() {
  if (options_.event_loop == nullptr || dry_run()) return;
  // Where completions are taken as they come, calls take no time.
  if (options_.simulated_update_bytes_per_second == 0) options_.event_loop->RunSome();
  MutexLock lock(mutex_);
  TakeCompletions(transfers_->Poll());
  if (failure_.ok()) static_cast<void>(PumpLocked());  // the next call returns an error
}

absl::Status EngineImpl::WaitForChange(std::string_view what, std::string_view name) {
  GANTRY_RETURN_IF_ERROR(failure_);
  GANTRY_RETURN_IF_ERROR(PumpLocked());
  const bool alive = mover_->transfers_under_way() > 0 || updates_->jobs_running() > 0 ||
                     updates_->HasRunnableJob();
  if (!alive) {
    // Slots that the arena keeps for reuse are the last reserve.
    if (arena_->Trim(0) > 0) return absl::OkStatus();
    return StuckError(what, name);
  }
  if (options_.event_loop == nullptr) {
    changed_.Wait(mutex_);
    return failure_;
  }
  std::vector<TransferCompletion> completions = transfers_->Poll();
  if (completions.empty()) {
    mutex_.Unlock();
    const bool ran = options_.event_loop->RunNext();
    mutex_.Lock();
    GANTRY_CHECK(ran) << "'" << name << "' waits for " << what << ", which will never come";
    completions = transfers_->Poll();
  }
  TakeCompletions(completions);
  return failure_;
}

void EngineImpl::AddStall(StallCause cause, Nanoseconds begin, Nanoseconds end) {
  stalls_[static_cast<size_t>(cause)] += end - begin;
  waited_ += end - begin;
  trace_.Stall(Name(cause), begin, end);
}

absl::Status EngineImpl::StuckError(std::string_view what, std::string_view name) {
  std::string held = StrCat("device: ", manager_->pool(Tier::kDevice).usage().ToString());
  if (!manager_->unified()) {
    held += StrCat("; host: ", manager_->pool(Tier::kHost).usage().ToString());
  }
  return ResourceExhausted("'", name, "' waits for ", what,
                           " but nothing can be moved out of the way (", held,
                           "); raise the budgets, or lower the batch size");
}

absl::Status EngineImpl::Drain() {
  if (dry_run()) return absl::OkStatus();
  MutexLock lock(mutex_);
  while (!(updates_->idle() || updates_->OnlyUndecidedLeft()) ||
         mover_->transfers_under_way() > 0) {
    GANTRY_RETURN_IF_ERROR(WaitForChange("the optimizer updates", "drain"));
  }
  return failure_;
}

}  // namespace gantry
