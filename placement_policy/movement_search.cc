#include "placement_policy/movement_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/strings.h"
#include "placement_policy/keep_set.h"
#include "placement_policy/policy.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

constexpr int64_t kReserve = 2;
constexpr int64_t kWriteReserve = 2;
constexpr std::array<int64_t, 8> kReserves = {2, 0, 1, 4, 8, 16, 32, 64};
constexpr std::array<int64_t, 6> kWriteReserves = {2, 0, 1, 4, 8, 16};
constexpr std::array<int64_t, 6> kLookAheads = {0, 1, 2, 4, 8, 32};
// Problems up to this size try every pair of reserves, larger ones the first of each with all
// others and then only what is best so far.
constexpr size_t kSmallUses = 256;
constexpr int64_t kStepsMax = 16;
constexpr int64_t kStepsToSettle = 96;  // for the best, when it does not repeat within kStepsMax
constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();
constexpr int32_t kAheadMax = 4;

class Search {
 public:
  Search(const MovementProblem& problem, const MovementSearchOptions& options)
      : problem_(problem),
        options_(options),
        cycle_(LinkUses(problem)),
        buffers_first_(options.free_buffers_first && UpdatesUseBuffers(problem)) {}

  absl::StatusOr<FoundMovement> Run() {
    const bool small = problem_.uses.size() <= kSmallUses;
    if (small) {
      for (const int64_t reserve : kReserves) TryWriteReserves(reserve);
    } else {
      TryWriteReserves(kReserve);
      const int64_t write_reserve = best_.has_value() ? best_->plan.write_reserve : kWriteReserve;
      for (const int64_t reserve : kReserves) {
        if (reserve != kReserve) Elapsed(KeepSetPlan(reserve, write_reserve));
      }
    }
    if (buffers_first_ && best_.has_value()) {
      MovementPlan plan = best_->plan;
      plan.free_buffers_first = false;
      Elapsed(plan);
    }
    for (const int64_t look_ahead : kLookAheads) {
      if (!options_.on_demand) break;
      for (const EvictionOrder eviction :
           {EvictionOrder::kFurthestNextUse, EvictionOrder::kLeastRecentlyUsed}) {
        Elapsed({.mode = MovementPlan::Mode::kOnDemand,
                 .eviction = eviction,
                 .look_ahead = look_ahead});
      }
    }
    if (static_cast<int64_t>(problem_.uses.size()) <= options_.local_search_uses_max) Improve();
    if (!best_.has_value()) {
      return error_.ok() ? ResourceExhausted("movement search: no plan is allowed") : error_;
    }
    best_->simulations = simulations_;
    return *std::move(best_);
  }

 private:
  bool done() const {
    if (simulations_ >= options_.simulations_max) return true;
    return best_.has_value() && best_->step.elapsed - options_.bound <= options_.bound / 5000;
  }

  MovementPlan KeepSetPlan(int64_t reserve, int64_t write_reserve) {
    reserve_ = reserve;
    return {
        .keep = ChooseKeepSet(problem_, cycle_, {.reserve = reserve, .pinned = options_.pinned}),
        .write_reserve = write_reserve,
        .free_buffers_first = buffers_first_};
  }

  void TryWriteReserves(int64_t reserve) {
    if (done()) return;
    MovementPlan plan = KeepSetPlan(reserve, 0);
    for (const int64_t write_reserve : kWriteReserves) {
      plan.write_reserve = write_reserve;
      Elapsed(plan);
    }
  }

  // ---------------------------------------------------------------- local search

  // One thing to change in a plan at one use.
  struct Change {
    enum class Kind : uint8_t { kKeep, kAhead, kWriteLate };
    size_t use = 0;
    Kind kind = Kind::kKeep;
    int32_t ahead_max = kNoLimit;
  };

  // Local searches from the keep sets of several reserves, the best plan's first.
  void Improve() {
    const std::vector<Change> changes = Changes();
    std::vector<MovementPlan> starts;
    if (best_.has_value() && best_->plan.mode == MovementPlan::Mode::kKeepSet) {
      starts.push_back(best_->plan);
    }
    for (const int64_t reserve : {0, 1, 2}) {
      for (const int64_t write_reserve : {0, 1}) {
        starts.push_back(KeepSetPlan(reserve, write_reserve));
      }
    }
    for (MovementPlan& start : starts) {
      start.fetch_ahead_max.assign(problem_.uses.size(), kNoLimit);
      start.write_late.assign(problem_.uses.size(), false);
      if (done()) return;
      Climb(std::move(start), changes);
    }
  }

  std::vector<Change> Changes() const {
    std::vector<Change> changes;
    for (size_t use = 0; use < problem_.uses.size(); ++use) {
      if (cycle_.links[use].gap == Gap::kSame) changes.push_back({.use = use});
    }
    for (size_t use = 0; use < problem_.uses.size(); ++use) {
      const BlockAccess access = problem_.uses[use].access;
      if (access == BlockAccess::kRead || access == BlockAccess::kConsume) continue;
      changes.push_back({.use = use, .kind = Change::Kind::kWriteLate});
    }
    for (size_t use = 0; use < problem_.uses.size(); ++use) {
      if (problem_.uses[use].access == BlockAccess::kCreate) continue;
      changes.push_back({.use = use, .kind = Change::Kind::kAhead});
      for (int32_t ahead = 0; ahead <= kAheadMax; ++ahead) {
        changes.push_back({.use = use, .kind = Change::Kind::kAhead, .ahead_max = ahead});
      }
    }
    return changes;
  }

  static bool Apply(const Change& change, MovementPlan& plan) {
    switch (change.kind) {
      case Change::Kind::kKeep:
        plan.keep[change.use] = !plan.keep[change.use];
        return true;
      case Change::Kind::kWriteLate:
        plan.write_late[change.use] = !plan.write_late[change.use];
        return true;
      case Change::Kind::kAhead:
        if (plan.fetch_ahead_max[change.use] == change.ahead_max) return false;
        plan.fetch_ahead_max[change.use] = change.ahead_max;
        return true;
    }
    return false;
  }

  // Takes every change that helps, one at a time and then two.
  void Climb(MovementPlan at, const std::vector<Change>& changes) {
    Nanoseconds elapsed = Elapsed(at);
    const auto accept = [&](MovementPlan plan) {
      const Nanoseconds time = Elapsed(plan);
      if (time >= elapsed) return false;
      elapsed = time;
      at = std::move(plan);
      return true;
    };
    bool better = true;
    while (better && !done()) {
      better = false;
      for (size_t i = 0; i < changes.size() && !done(); ++i) {
        MovementPlan one = at;
        if (Apply(changes[i], one)) better |= accept(std::move(one));
      }
      for (size_t i = 0; i < changes.size() && !better && !done(); ++i) {
        MovementPlan one = at;
        if (!Apply(changes[i], one)) continue;
        for (size_t j = i + 1; j < changes.size() && !better && !done(); ++j) {
          MovementPlan two = one;
          if (changes[j].use != changes[i].use && Apply(changes[j], two)) {
            better = accept(std::move(two));
          }
        }
      }
    }
  }

  // What the plan takes, and the best plan if it is; kNever when it does not work.
  Nanoseconds Elapsed(const MovementPlan& plan) {
    constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::max();
    if (done() || (options_.allowed && !options_.allowed(plan))) return kNever;
    ++simulations_;
    // A local search compares with where it is, which need not be the best.
    const bool compares =
        static_cast<int64_t>(problem_.uses.size()) > options_.local_search_uses_max;
    absl::StatusOr<SimulatedStep> step = Simulate(
        problem_, plan,
        {.steps_max = kStepsMax,
         .give_up_above = compares && best_.has_value() ? GiveUpAbove(best_->step.elapsed) : 0});
    if (step.ok() && !step->steady && Better(*step)) {
      step = Simulate(problem_, plan, {.steps_max = kStepsToSettle});
    }
    if (!step.ok()) {
      if (error_.ok()) error_ = step.status();
      return kNever;
    }
    const Nanoseconds elapsed = step->elapsed;
    if (Better(*step)) {
      best_ = {.plan = plan, .step = *std::move(step), .reserve = reserve_};
    }
    return elapsed;
  }
  bool Better(const SimulatedStep& step) const {
    return !best_.has_value() || step.elapsed < best_->step.elapsed;
  }

  const MovementProblem& problem_;
  const MovementSearchOptions& options_;
  const UseCycle cycle_;
  const bool buffers_first_;
  std::optional<FoundMovement> best_;
  absl::Status error_;
  int64_t simulations_ = 0;
  int64_t reserve_ = kReserve;  // of the keep set made last
};

}  // namespace

MovementPlan PlainMovement(const MovementProblem& problem, const UseCycle& cycle,
                           std::vector<bool> pinned, const MovementReserves& reserves) {
  return {.keep = ChooseKeepSet(problem, cycle,
                                {.reserve = reserves.keep, .pinned = std::move(pinned)}),
          .write_reserve = reserves.write};
}

Nanoseconds GiveUpAbove(Nanoseconds best) { return best + best / 64; }

bool UpdatesUseBuffers(const MovementProblem& problem) {
  return std::ranges::any_of(problem.updates, [](const MovementProblem::HostUpdate& update) {
    return update.file_bytes > 0;
  });
}

absl::StatusOr<FoundMovement> SearchMovement(const MovementProblem& problem,
                                             const MovementSearchOptions& options) {
  return Search(problem, options).Run();
}

}  // namespace gantry
