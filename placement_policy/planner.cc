#include "placement_policy/planner.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
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
constexpr int64_t kFewBuffers = 3;
// Steps simulated of a candidate; one that is the best so far and does not repeat gets more.
constexpr int64_t kStepsToSettle = 96;
// Seeds of the number of streamed chunks: so many between none and all.
constexpr int64_t kStreamedSteps = 64;
// Where a simulation costs next to nothing, it climbs from so many other seeds, too.
constexpr int64_t kSmallUpdated = 256;
constexpr size_t kOtherSeeds = 3;
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
    // As if activations stayed, and then whether something is gained when they do not.
    absl::Status error = TrySeeds(PlaceSeeds());
    if (best_.has_value()) ImprovePlaces();
    if (chooses_activations()) {
      const absl::Status tried = TrySeeds(ActivationSeeds());
      if (error.ok()) error = tried;
      if (best_.has_value()) ImproveActivations();
    }
    if (!best_.has_value()) return error.ok() ? ResourceExhausted("no placement was tried") : error;
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
    decision.movement.free_buffers_first =
        options_.free_buffers_first && UpdatesUseBuffers(problem);
    GANTRY_RETURN_IF_ERROR(builder_.CheckHost(decision, decision.movement));
    const Nanoseconds give_up = best_.has_value() ? GiveUpAbove(best_->predicted.elapsed) : 0;
    GANTRY_ASSIGN_OR_RETURN(decision.predicted,
                            Simulate(problem, decision.movement, {.give_up_above = give_up}));
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
    return options_.move_activations && !options_.all_may_leave &&
           (options_.may_leave || options_.may_compute_again) && builder_.activations() > 0;
  }
  // What the options allow of a shape.
  PlacementShape Allowed(PlacementShape shape) const {
    if (!options_.next_forward) shape.next_forward = 0;
    if (!chooses_activations() || !options_.may_leave) shape.offloaded = 0;
    if (!chooses_activations() || !options_.may_compute_again) shape.recomputed = 0;
    if (options_.all_may_leave) shape.offloaded = builder_.activations();
    return shape;
  }

  static constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::max();

  // Tries a placement; keeps it when it is the best so far. How long its step is; kNever when that
  // is known not to be better.
  absl::StatusOr<Nanoseconds> Try(const PlacementShape& wanted) {
    GANTRY_ASSIGN_OR_RETURN(const PlacementShape shape, builder_.Complete(Allowed(wanted)));
    const auto key =
        std::tuple(shape.resident, shape.parameters_resident, shape.streamed, shape.streamed_within,
                   shape.next_forward, shape.host_buffers, shape.offloaded, shape.recomputed);
    const auto [seen, is_new] = seen_.emplace(key, kNever);
    if (!is_new) return seen->second;
    // Totals of the lanes alone can tell that it is not better.
    if (best_.has_value() &&
        builder_.LaneSeconds(shape) * 1e9 > static_cast<double>(best_->predicted.elapsed)) {
      return kNever;
    }
    ++tried_;
    GANTRY_ASSIGN_OR_RETURN(MovementDecision decision, Evaluate(shape));
    seen->second = decision.predicted.elapsed;
    if (Better(decision)) best_ = std::move(decision);
    return seen->second;
  }

  // ---------------------------------------------------------------- where to begin

  // The error of the first that does not fit.
  absl::Status TrySeeds(const std::vector<PlacementShape>& seeds) {
    absl::Status error;
    for (const PlacementShape& seed : seeds) {
      const absl::StatusOr<Nanoseconds> tried = Try(seed);
      if (tried.ok()) seeds_.emplace_back(*tried, seed);
      if (!tried.ok() && error.ok()) error = tried.status();
    }
    std::ranges::stable_sort(seeds_, {}, [](const auto& seed) { return seed.first; });
    return error;
  }

  // Every way to place updates with all activations kept.
  std::vector<PlacementShape> PlaceSeeds() {
    std::vector<PlacementShape> seeds;
    AddSeeds({.host_buffers = kHostBuffers}, seeds);
    return seeds;
  }

  // Some with fewer kept.
  std::vector<PlacementShape> ActivationSeeds() {
    std::vector<PlacementShape> seeds;
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
    const size_t first = seeds.size();
    seeds.push_back(from);
    ideal_ = std::min(ideal_, SecondsOf(from));
    for (const int64_t buffers : {kFewBuffers, 2 * from.host_buffers, 4 * from.host_buffers}) {
      seeds.push_back(from);
      seeds.back().host_buffers = buffers;
    }
    if (!chooses_places()) return;
    const int64_t most = builder_.ResidentMax();
    for (const int64_t resident :
         {int64_t{0}, most / 4, most / 2, 3 * most / 4, 9 * most / 10, most}) {
      AddPlaces(from, resident, /*parameters=*/0, seeds);
    }
    if (machine_.has_file_tier) {
      const int64_t both = builder_.ResidentMaxWithParameters();
      for (const int64_t resident : {both / 2, 3 * both / 4, 9 * both / 10, both}) {
        AddPlaces(from, resident, resident, seeds);
      }
    }
    // The most promising first: its time rules others out.
    std::ranges::stable_sort(seeds.begin() + static_cast<int64_t>(first), seeds.end(), {},
                             [this](const PlacementShape& shape) { return SecondsOf(shape); });
  }

  void AddPlaces(const PlacementShape& from, int64_t resident, int64_t parameters,
                 std::vector<PlacementShape>& seeds) {
    PlacementShape shape = from;
    shape.resident = resident;
    shape.parameters_resident = parameters;
    for (const int64_t buffers : {from.host_buffers, kFewBuffers}) {
      shape.host_buffers = buffers;
      shape.streamed = shape.next_forward = 0;
      seeds.push_back(shape);
      shape.streamed = FewestStreamed(shape);
      if (shape.streamed == 0) continue;
      seeds.push_back(shape);
      shape.next_forward = shape.streamed / 2;
      seeds.push_back(shape);
    }
  }

  double SecondsOf(const PlacementShape& shape) const {
    const absl::StatusOr<PlacementShape> complete = builder_.Complete(Allowed(shape));
    return complete.ok() ? builder_.LaneSeconds(*complete) : 1e30;
  }

  // The fewest streamed chunks with which the lanes' totals are least.
  int64_t FewestStreamed(const PlacementShape& from) {
    const absl::StatusOr<PlacementShape> complete = builder_.Complete(from);
    if (!complete.ok()) return 0;
    PlacementShape shape = *complete;
    int64_t fewest = 0;
    double least = 1e30;
    const int64_t others = builder_.updated() - shape.resident;
    for (int64_t i = 0; i <= kStreamedSteps; ++i) {
      shape.streamed = others * i / kStreamedSteps;  // of no consequence for what is in files
      const double time = builder_.LaneSeconds(shape);
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

  // From the best seeds in one direction at a time, as far as it helps, with strides that shrink;
  // then other ways to move, and what they move well.
  void ImprovePlaces() {
    const int64_t most = options_.placements_max;
    if (chooses_places()) {
      ClimbIn(PlaceDirections(), most * 2 / 3, BestPlace());
      const bool small = builder_.updated() <= kSmallUpdated;
      for (size_t i = 1; i < seeds_.size() && small && i <= kOtherSeeds; ++i) {
        ClimbIn(PlaceDirections(), tried_ + most / 2, seeds_[i]);
      }
      // Apart, since where streamed chunks lie hides how many there should be.
      if (!seeds_.empty()) ClimbIn(DirectionsWithin(), tried_ + most / 4, seeds_.front());
    }
    SearchMoves();
    if (reserves_ == MovementReserves() || !chooses_places() || NearEnough()) return;
    seen_.clear();
    ClimbIn(PlaceDirections(), tried_ + most / 4, BestPlace());
    SearchMoves();
  }

  void ImproveActivations() {
    const int64_t most = options_.placements_max;
    ClimbIn(ActivationDirections(), tried_ + most / 4, BestPlace());
    if (chooses_places()) ClimbIn(PlaceDirections(), tried_ + most / 4, BestPlace());
    if (best_->shape.offloaded + best_->shape.recomputed > 0) SearchMoves();
  }

  // Numbers to add to a shape's, in strides; a stride of activations is the same share of them.
  struct Direction {
    int64_t resident = 0;
    int64_t parameters_resident = 0;
    int64_t streamed = 0;
    int64_t streamed_within = 0;  // twice as far or half
    int64_t next_forward = 0;
    int64_t offloaded = 0;
    int64_t recomputed = 0;
    int64_t buffers = 0;  // twice as many or half; with a stride of 1 one more or fewer
  };

  static std::vector<Direction> PlaceDirections() {
    std::vector<Direction> directions;
    for (const int64_t sign : {1, -1}) {
      directions.push_back({.streamed = sign});
      directions.push_back({.resident = sign});
      directions.push_back({.resident = sign, .streamed = -sign});
      directions.push_back({.next_forward = sign});
      directions.push_back({.streamed = sign, .next_forward = sign});
      directions.push_back({.parameters_resident = sign});
      directions.push_back({.buffers = sign});
    }
    return directions;
  }

  static std::vector<Direction> DirectionsWithin() {
    std::vector<Direction> directions = PlaceDirections();
    directions.insert(directions.begin(), {{.streamed_within = -1}, {.streamed_within = 1}});
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
    const bool all_parameters = from.parameters_resident == from.resident;
    shape.parameters_resident +=
        (by.parameters_resident + (all_parameters ? by.resident : 0)) * stride;
    shape.streamed += by.streamed * stride;
    if (by.streamed_within < 0) shape.streamed_within /= 2;
    if (by.streamed_within > 0) shape.streamed_within *= 2;
    shape.next_forward += by.next_forward * stride;
    const int64_t few = std::max<int64_t>(
        builder_.activations() * stride / std::max<int64_t>(builder_.updated(), 1), 1);
    shape.offloaded += by.offloaded * few;
    shape.recomputed += by.recomputed * few;
    if (stride == 1) {
      shape.host_buffers = std::max<int64_t>(shape.host_buffers + by.buffers, 2);
    } else {
      if (by.buffers > 0) shape.host_buffers *= 2;
      if (by.buffers < 0) shape.host_buffers = std::max<int64_t>(shape.host_buffers / 2, 2);
    }
    return shape;
  }

  // A placement and how long its step is.
  using Place = std::pair<Nanoseconds, PlacementShape>;
  Place BestPlace() const { return {best_->predicted.elapsed, best_->shape}; }

  void ClimbIn(const std::vector<Direction>& directions, int64_t tries_max, Place from) {
    const bool files = best_->shape.in_files > 0;
    const int64_t finest = files ? 1 : std::max<int64_t>(builder_.updated() / 256, 1);
    const auto goes_on = [&] { return tried_ < tries_max && !NearEnough(); };
    const auto improves = [&](const PlacementShape& shape) {
      const absl::StatusOr<Nanoseconds> time = Try(shape);  // an error: it does not fit
      if (!time.ok() || *time >= from.first) return false;
      from = {*time, shape};
      return true;
    };
    for (int64_t stride = std::max<int64_t>(builder_.updated() / 8, 1); stride >= finest;
         stride /= 2) {
      bool better = true;
      while (better && goes_on()) {
        better = false;
        for (const Direction& direction : directions) {
          while (goes_on() && improves(Moved(from.second, direction, stride))) better = true;
        }
      }
    }
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
    search.free_buffers_first = options_.free_buffers_first;
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
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>,
           Nanoseconds>
      seen_;
  std::vector<std::pair<Nanoseconds, PlacementShape>> seeds_;  // that fit, the best first
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
