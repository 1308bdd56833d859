#include "placement_policy/planner.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/lower_bound.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/movement_search.h"
#include "placement_policy/placement_builder.h"
#include "placement_policy/policy.h"
#include "placement_policy/policy_plan.h"
#include "placement_policy/simulator.h"

namespace gantry {
namespace {

constexpr int64_t kHostBuffers = 8;
// Steps simulated of a candidate; one that is the best so far and does not repeat gets more.
constexpr int64_t kStepsToSettle = 96;
// Seeds of the number of streamed chunks: so many between none and all.
constexpr int64_t kStreamedSteps = 64;
// Near enough to what the lanes allow to stop looking for placements.
constexpr double kNearEnough = 1.0005;

class Planner {
 public:
  Planner(const Trace& trace, const Machine& machine, const PlannerOptions& options)
      : trace_(trace),
        machine_(machine),
        options_(options),
        builder_(trace, machine, options.wait_for_norm) {}

  absl::StatusOr<MovementDecision> Run() {
    absl::Status first_error;
    for (const PlacementShape& seed : Seeds()) {
      const absl::Status tried = Try(seed);
      if (!tried.ok() && first_error.ok()) first_error = tried;
    }
    if (!best_.has_value()) {
      return first_error.ok() ? ResourceExhausted("no placement was tried") : first_error;
    }
    Climb();
    SearchMoves();
    if (reserves_ != MovementReserves() && chooses_places() && !NearEnough()) {
      // Other reserves move other placements well.
      seen_.clear();
      ClimbIn(PlaceDirections(), tried_ + options_.placements_max / 4);
      SearchMoves();
    }
    if (!options_.keep_sets_only) TryPolicies();
    best_->placements_tried = tried_;
    best_->hash = HashOf(*best_);
    return *std::move(best_);
  }

  absl::StatusOr<MovementDecision> Evaluate(const PlacementShape& shape) const {
    GANTRY_ASSIGN_OR_RETURN(MovementDecision decision, builder_.Place(shape));
    const MovementProblem& problem = decision.training.problem;
    decision.movement = PlainMovement(problem, LinkUses(problem),
                                      PlacementBuilder::PinnedBlocks(decision), reserves_);
    GANTRY_RETURN_IF_ERROR(builder_.CheckHost(decision, decision.movement));
    GANTRY_ASSIGN_OR_RETURN(decision.predicted, Simulate(problem, decision.movement, {}));
    if (!decision.predicted.steady && Better(decision)) {
      GANTRY_ASSIGN_OR_RETURN(decision.predicted,
                              Simulate(problem, decision.movement, {.steps_max = kStepsToSettle}));
    }
    return decision;
  }

 private:
  bool Better(const MovementDecision& decision) const {
    return !best_.has_value() || decision.predicted.elapsed < best_->predicted.elapsed;
  }
  bool chooses_places() const {
    return !options_.host_updates_only && !machine_.unified && builder_.updated() > 0;
  }
  bool chooses_activations() const {
    return options_.move_activations && builder_.activations() > 0;
  }

  // Tries a placement; keeps it when it is the best so far.
  absl::Status Try(PlacementShape wanted) {
    if (!options_.next_forward) wanted.next_forward = 0;
    GANTRY_ASSIGN_OR_RETURN(const PlacementShape shape, builder_.Complete(wanted));
    const auto key = std::tuple(shape.resident, shape.streamed, shape.next_forward,
                                shape.host_buffers, shape.offloaded, shape.recomputed);
    if (!seen_.insert(key).second) return absl::OkStatus();
    // Totals of the lanes alone can tell that it is not better.
    if (best_.has_value() &&
        builder_.LaneSeconds(shape) * 1e9 > static_cast<double>(best_->predicted.elapsed)) {
      return absl::OkStatus();
    }
    ++tried_;
    GANTRY_ASSIGN_OR_RETURN(MovementDecision decision, Evaluate(shape));
    if (Better(decision)) best_ = std::move(decision);
    return absl::OkStatus();
  }

  // ---------------------------------------------------------------- where to begin

  // Every way to place updates with all activations kept, and some with fewer kept.
  std::vector<PlacementShape> Seeds() {
    std::vector<PlacementShape> seeds;
    if (options_.start.has_value()) seeds.push_back(*options_.start);
    AddSeeds({.host_buffers = kHostBuffers}, seeds);
    if (!chooses_activations()) return seeds;
    const int64_t all = builder_.activations();
    for (const auto& [offloaded, recomputed] :
         {std::pair(int64_t{0}, all / 2), std::pair(all / 2, int64_t{0}),
          std::pair(all / 2, all / 2), std::pair(all, int64_t{0})}) {
      PlacementShape shape = {
          .host_buffers = kHostBuffers, .offloaded = offloaded, .recomputed = recomputed};
      seeds.push_back(shape);
      if (!chooses_places()) continue;
      shape.resident = builder_.ResidentMax() / 2;
      shape.streamed = FewestStreamed(shape);
      seeds.push_back(shape);
    }
    return seeds;
  }

  void AddSeeds(const PlacementShape& from, std::vector<PlacementShape>& seeds) {
    seeds.push_back(from);
    ideal_ = std::min(ideal_, SecondsOf(from));
    if (!chooses_places()) {
      for (const int64_t factor : {2, 4}) {
        seeds.push_back(from);
        seeds.back().host_buffers = from.host_buffers * factor;
      }
      return;
    }
    const int64_t most = builder_.ResidentMax();
    for (const int64_t resident : {int64_t{0}, most / 4, most / 2, 3 * most / 4, 9 * most / 10}) {
      PlacementShape shape = from;
      shape.resident = resident;
      seeds.push_back(shape);
      shape.streamed = FewestStreamed(shape);
      if (shape.streamed == 0) continue;
      seeds.push_back(shape);
      shape.next_forward = shape.streamed / 2;
      seeds.push_back(shape);
    }
  }

  double SecondsOf(const PlacementShape& shape) const {
    const absl::StatusOr<PlacementShape> complete = builder_.Complete(shape);
    return complete.ok() ? builder_.LaneSeconds(*complete) : 1e30;
  }

  // The fewest streamed chunks with which the lanes' totals are least.
  int64_t FewestStreamed(PlacementShape shape) {
    int64_t fewest = 0;
    double least = 1e30;
    const int64_t others = builder_.updated() - shape.resident;
    for (int64_t i = 0; i <= kStreamedSteps; ++i) {
      shape.streamed = others * i / kStreamedSteps;
      const double time = SecondsOf(shape);
      ideal_ = std::min(ideal_, time);
      if (time < least * 0.9999) {
        least = time;
        fewest = shape.streamed;
      }
    }
    return fewest;
  }

  // ---------------------------------------------------------------- climbing

  bool NearEnough() const {
    return static_cast<double>(best_->predicted.elapsed) <= ideal_ * 1e9 * kNearEnough;
  }

  // From the best seed in one direction at a time, as far as it helps, with strides that shrink.
  // First places, then activations, then both once more.
  void Climb() {
    if (chooses_places()) ClimbIn(PlaceDirections(), options_.placements_max * 2 / 3);
    if (chooses_activations()) {
      ClimbIn(ActivationDirections(), options_.placements_max * 5 / 6);
      if (chooses_places()) ClimbIn(PlaceDirections(), options_.placements_max);
    }
  }

  // Numbers to add to a shape's, in strides; a stride of activations is the same share of them.
  struct Direction {
    int64_t resident = 0;
    int64_t streamed = 0;
    int64_t next_forward = 0;
    int64_t offloaded = 0;
    int64_t recomputed = 0;
    int64_t buffers_log2 = 0;
  };

  static std::vector<Direction> PlaceDirections() {
    std::vector<Direction> directions;
    for (const int64_t sign : {1, -1}) {
      directions.push_back({.streamed = sign});
      directions.push_back({.resident = sign});
      directions.push_back({.resident = sign, .streamed = -sign});
      directions.push_back({.next_forward = sign});
      directions.push_back({.streamed = sign, .next_forward = sign});
      directions.push_back({.buffers_log2 = sign});
    }
    return directions;
  }

  static std::vector<Direction> ActivationDirections() {
    return {{.recomputed = -1},
            {.offloaded = -1},
            {.recomputed = 1},
            {.offloaded = 1},
            {.offloaded = 1, .recomputed = -1},
            {.offloaded = -1, .recomputed = 1}};
  }

  PlacementShape Moved(const PlacementShape& from, const Direction& by, int64_t stride) const {
    PlacementShape shape = from;
    shape.resident += by.resident * stride;
    shape.streamed += by.streamed * stride;
    shape.next_forward += by.next_forward * stride;
    const int64_t few = std::max<int64_t>(
        builder_.activations() * stride / std::max<int64_t>(builder_.updated(), 1), 1);
    shape.offloaded += by.offloaded * few;
    shape.recomputed += by.recomputed * few;
    if (by.buffers_log2 > 0) shape.host_buffers *= 2;
    if (by.buffers_log2 < 0) shape.host_buffers = std::max<int64_t>(shape.host_buffers / 2, 2);
    return shape;
  }

  void ClimbIn(const std::vector<Direction>& directions, int64_t tries_max) {
    const int64_t finest = std::max<int64_t>(builder_.updated() / 256, 1);
    const auto goes_on = [&] { return tried_ < tries_max && !NearEnough(); };
    for (int64_t stride = std::max<int64_t>(builder_.updated() / 8, 1); stride >= finest;
         stride /= 2) {
      bool better = true;
      while (better && goes_on()) {
        better = false;
        for (const Direction& direction : directions) {
          while (goes_on() && Improves(Moved(best_->shape, direction, stride))) better = true;
        }
      }
    }
  }

  bool Improves(const PlacementShape& shape) {
    const Nanoseconds before = best_->predicted.elapsed;
    static_cast<void>(Try(shape));  // does not fit: not chosen
    return best_->predicted.elapsed < before;
  }

  // ---------------------------------------------------------------- other ways to move

  void SearchMoves() {
    MovementDecision decision = *best_;
    const MovementProblem& problem = decision.training.problem;
    MovementSearchOptions search = {.pinned = PlacementBuilder::PinnedBlocks(decision),
                                    .bound = ComputeLowerBound(problem, {}).total,
                                    .allowed = [this, &decision](const MovementPlan& plan) {
                                      return builder_.CheckHost(decision, plan).ok();
                                    }};
    search.on_demand = !options_.keep_sets_only;
    absl::StatusOr<FoundMovement> found = SearchMovement(problem, search);
    if (!found.ok() || found->step.elapsed >= best_->predicted.elapsed) return;
    if (found->plan.mode == MovementPlan::Mode::kKeepSet) {
      reserves_ = {.keep = found->reserve, .write = found->plan.write_reserve};
    }
    best_->movement = std::move(found->plan);
    best_->predicted = std::move(found->step);
  }

  void TryPolicies() {
    if (trace_.chunks.empty()) return;
    for (const std::string_view name : PolicyNames()) {
      absl::StatusOr<MovementDecision> decision =
          PolicyPlan(name, trace_, machine_, {.wait_for_norm = options_.wait_for_norm});
      if (!decision.ok()) continue;  // it does not fit
      const bool on_device = std::ranges::any_of(
          decision->choices.chunks,
          [](const ChunkChoice& choice) { return choice.place != UpdatePlace::kHost; });
      if (on_device && options_.host_updates_only) continue;
      if (options_.keep_sets_only && decision->movement.mode != MovementPlan::Mode::kKeepSet)
        continue;
      if (Better(*decision)) best_ = *std::move(decision);
    }
  }

  const Trace& trace_;
  const Machine& machine_;
  const PlannerOptions& options_;
  const PlacementBuilder builder_;
  MovementReserves reserves_;
  double ideal_ = 1e30;  // seconds: the least that the lanes allow with any seed
  std::set<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>> seen_;
  int64_t tried_ = 0;
  std::optional<MovementDecision> best_;
};

}  // namespace

absl::StatusOr<MovementDecision> PlanMovement(const Trace& trace, const Machine& machine,
                                              const PlannerOptions& options) {
  return Planner(trace, machine, options).Run();
}

absl::StatusOr<MovementDecision> EvaluateShape(const Trace& trace, const Machine& machine,
                                               const PlannerOptions& options,
                                               const PlacementShape& shape) {
  return Planner(trace, machine, options).Evaluate(shape);
}

}  // namespace gantry
