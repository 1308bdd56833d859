#include "placement_policy/plan_alternatives.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/check_fits.h"
#include "placement_policy/free_placement_bound.h"

namespace gantry {
namespace {

// Chunks are so many times as large in the first comparison.
constexpr int64_t kCoarseness = 4;
// Alternatives that take at most so many times the shortest are planned as they are: what coarse
// plans say of two ways may be wrong by as much.
constexpr double kNear = 1.05;
// Coarse chunks say little where the device has hardly more slots than an operator needs at once.
constexpr int64_t kSlotsToSpare = 24;
// A search simulates about so many uses of blocks, or this many placements if that is more: it gets
// shorter where each simulation gets longer, and a plan still takes seconds.
constexpr int64_t kUsesSearched = 1'000'000;
constexpr int64_t kPlacementsMin = 12;

Nanoseconds ComputeOf(const Trace& trace) {
  Nanoseconds compute = 0;
  for (const Moment& moment : trace.moments) compute += moment.compute;
  return compute;
}

int64_t AffordablePlacements(const Trace& trace) {
  return std::max(kUsesSearched / std::max<int64_t>(std::ssize(trace.uses), 1), kPlacementsMin);
}

// The same shares of the chunks of another size; activations are the same number.
PlacementShape Scaled(PlacementShape shape, const Trace& from, const Trace& to) {
  const double ratio =
      static_cast<double>(to.chunks.size()) / static_cast<double>(from.chunks.size());
  for (int64_t* const count : {&shape.resident, &shape.streamed, &shape.next_forward}) {
    *count = static_cast<int64_t>(static_cast<double>(*count) * ratio);
  }
  if (shape.host_buffers > 0) {
    shape.host_buffers =
        std::max<int64_t>(std::llround(static_cast<double>(shape.host_buffers) * ratio), 2);
  }
  return shape;
}

class Comparison {
 public:
  Comparison(const PlanAlternativesInput& alternatives, const PlannerOptions& options)
      : alternatives_(alternatives),
        options_(options),
        starts_(static_cast<size_t>(alternatives.count)) {
    best_.tried.resize(static_cast<size_t>(alternatives.count));
  }

  absl::StatusOr<BestPlan> Run() {
    if (alternatives_.count < 1) return InvalidArgument("there are no ways to run the step");
    GANTRY_RETURN_IF_ERROR(PlanCoarsely());
    std::vector<int64_t> order;
    for (int64_t i = 0; i < alternatives_.count; ++i) {
      if (Tried(i).status.ok()) order.push_back(i);
    }
    // The most promising first; the rest are then often known to be longer.
    std::ranges::stable_sort(order, {}, [this](int64_t i) { return Tried(i).predicted; });
    for (const int64_t i : order) {
      const bool near = !found_ || static_cast<double>(Tried(i).predicted) <=
                                       kNear * static_cast<double>(Tried(order.front()).predicted);
      if (near) GANTRY_RETURN_IF_ERROR(PlanAsItIs(i));
    }
    if (!found_) return FirstRefusal();
    return std::move(best_);
  }

 private:
  struct Start {
    PlacementShape shape;
    Trace trace;
  };

  TriedAlternative& Tried(int64_t number) { return best_.tried[static_cast<size_t>(number)]; }

  absl::Status FirstRefusal() const {
    for (const TriedAlternative& tried : best_.tried) GANTRY_RETURN_IF_ERROR(tried.status);
    return ResourceExhausted("no way to run the step may be chosen");
  }

  // What an alternative is first planned with: coarse chunks, or its own where those do not fit.
  struct Draft {
    int64_t number;
    PlanInput input;
    bool coarse;
    Nanoseconds bound;  // with any placement
  };

  absl::Status PlanCoarsely() {
    std::vector<Draft> drafts;
    for (int64_t i = 0; i < alternatives_.count; ++i) {
      absl::StatusOr<PlanInput> exact = alternatives_.make(i, 1);
      absl::Status fits = exact.status();
      if (fits.ok()) fits = Fits(*exact);
      if (!fits.ok()) {
        GANTRY_RETURN_IF_ERROR(Refuse(fits, Tried(i)));
        continue;
      }
      // One way, and a search that need not be cut short, or has a place to start from.
      if (alternatives_.count == 1 &&
          (options_.start.has_value() ||
           AffordablePlacements(exact->trace) >= options_.placements_max)) {
        continue;
      }
      absl::StatusOr<PlanInput> coarse = alternatives_.make(i, kCoarseness);
      const bool smaller = coarse.ok() && SaysEnough(*coarse);
      drafts.push_back({.number = i,
                        .input = smaller ? *std::move(coarse) : *std::move(exact),
                        .coarse = smaller,
                        .bound = 0});
      GANTRY_ASSIGN_OR_RETURN(drafts.back().bound, AnyBound(drafts.back().input));
    }
    // The most promising first: then it is often known that others take longer.
    std::ranges::stable_sort(drafts, {}, &Draft::bound);
    std::optional<Nanoseconds> shortest;
    for (Draft& draft : drafts) {
      TriedAlternative& tried = Tried(draft.number);
      if (shortest.has_value() &&
          static_cast<double>(draft.bound) > kNear * static_cast<double>(*shortest)) {
        tried.status = FailedPrecondition("it takes longer than another way");
        tried.bound = draft.bound;
        continue;
      }
      GANTRY_RETURN_IF_ERROR(PlanDraft(draft));
      if (tried.status.ok())
        shortest = std::min(shortest.value_or(tried.predicted), tried.predicted);
    }
    return absl::OkStatus();
  }

  // Activations that may leave make room that nobody knows before there is a plan.
  absl::Status Fits(const PlanInput& input) const {
    return options_.move_activations ? absl::OkStatus() : CheckFits(input.trace, input.machine);
  }

  bool SaysEnough(const PlanInput& coarse) const {
    constexpr std::array<Phase, 2> kOperators = {Phase::kForward, Phase::kBackward};
    if (!Fits(coarse).ok()) return false;
    const int64_t needed = LargestNeed(coarse.trace, kOperators).slots;
    return coarse.machine.device_slots - needed >= kSlotsToSpare;
  }

  absl::Status PlanDraft(Draft& draft) {
    TriedAlternative& tried = Tried(draft.number);
    const absl::StatusOr<MovementDecision> decision =
        Plan(draft.input.trace, draft.input.machine, options_);
    if (!decision.ok() && draft.coarse && absl::IsResourceExhausted(decision.status())) {
      GANTRY_ASSIGN_OR_RETURN(draft.input, alternatives_.make(draft.number, 1));
      draft.coarse = false;
      return PlanDraft(draft);
    }
    if (!decision.ok()) return Refuse(decision.status(), tried);
    tried.predicted = decision->predicted.elapsed;
    tried.bound = draft.bound;
    if (draft.coarse) {
      starts_[static_cast<size_t>(draft.number)] = {.shape = decision->shape,
                                                    .trace = std::move(draft.input.trace)};
    }
    return absl::OkStatus();
  }

  // No plan takes less, whatever its placement.
  absl::StatusOr<Nanoseconds> AnyBound(const PlanInput& input) const {
    const Nanoseconds compute = ComputeOf(input.trace);
    const bool computing_only =
        options_.move_activations || input.machine.unified || input.trace.chunks.empty();
    if (computing_only) return compute;
    GANTRY_ASSIGN_OR_RETURN(const FreePlacementInput problem,
                            FreePlacementInputOf(input.trace, input.machine));
    return std::max(compute, ComputeFreePlacementBound(problem, {}).total);
  }

  absl::Status PlanAsItIs(int64_t number) {
    GANTRY_ASSIGN_OR_RETURN(PlanInput input, alternatives_.make(number, 1));
    if (found_ && ComputeOf(input.trace) > best_.decision.predicted.elapsed) {
      return absl::OkStatus();
    }
    PlannerOptions options = options_;
    const std::optional<Start>& start = starts_[static_cast<size_t>(number)];
    if (start.has_value() && AffordablePlacements(input.trace) < options_.placements_max) {
      options.start = Scaled(start->shape, start->trace, input.trace);
    }
    absl::StatusOr<MovementDecision> decision = Plan(input.trace, input.machine, options);
    if (!decision.ok()) return Refuse(decision.status(), Tried(number));
    if (alternatives_.allowed) {
      const absl::Status allowed = alternatives_.allowed(input, *decision);
      if (!allowed.ok()) return Refuse(allowed, Tried(number));
    }
    Tried(number) = {.status = absl::OkStatus(),
                     .predicted = decision->predicted.elapsed,
                     .bound = 0,
                     .in_full = true};
    if (found_ && (decision->predicted.elapsed > best_.decision.predicted.elapsed ||
                   (decision->predicted.elapsed == best_.decision.predicted.elapsed &&
                    number > best_.chosen))) {
      return absl::OkStatus();
    }
    found_ = true;
    best_.chosen = number;
    best_.input = std::move(input);
    best_.decision = *std::move(decision);
    return absl::OkStatus();
  }

  static absl::StatusOr<MovementDecision> Plan(const Trace& trace, const Machine& machine,
                                               PlannerOptions options) {
    options.placements_max = std::min(options.placements_max, AffordablePlacements(trace));
    return PlanMovement(trace, machine, options);
  }

  static absl::Status Refuse(const absl::Status& why, TriedAlternative& tried) {
    if (!absl::IsResourceExhausted(why)) return why;
    tried.status = why;
    return absl::OkStatus();
  }

  const PlanAlternativesInput& alternatives_;
  const PlannerOptions& options_;
  std::vector<std::optional<Start>> starts_;  // by number: where the exact search begins
  bool found_ = false;
  BestPlan best_;
};

}  // namespace

absl::StatusOr<BestPlan> PlanAlternatives(const PlanAlternativesInput& alternatives,
                                          const PlannerOptions& options) {
  return Comparison(alternatives, options).Run();
}

absl::StatusOr<Nanoseconds> TimeWithOtherChunks(const MovementDecision& decision,
                                                const PlanInput& from, const PlanInput& to,
                                                const PlannerOptions& options) {
  if (!options.move_activations) GANTRY_RETURN_IF_ERROR(CheckFits(to.trace, to.machine));
  GANTRY_ASSIGN_OR_RETURN(
      const MovementDecision other,
      EvaluateShape(to.trace, to.machine, options, Scaled(decision.shape, from.trace, to.trace)));
  return other.predicted.elapsed;
}

}  // namespace gantry
