#include "placement_policy/planner.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/keep_set.h"

namespace gantry {
namespace {

// Slots beside the keep set and for what is on its way out: right almost everywhere. Streamed
// states are large blocks, for which more is tried.
constexpr int64_t kReserve = 2;
constexpr std::array<int64_t, 8> kReserves = {0, 1, 2, 4, 8, 16, 32, 64};
constexpr std::array<int64_t, 4> kWriteReserves = {0, 1, 2, 4};
constexpr std::array<int64_t, 6> kLookAheads = {0, 1, 2, 4, 8, 32};
constexpr std::array<int64_t, 4> kHostBuffers = {4, 8, 16, 32};
// Gradients on their way through the host, in slots.
constexpr int64_t kGradientSlots = 4;

class Planner {
 public:
  Planner(const Trace& trace, const Machine& machine, const PlannerOptions& options)
      : trace_(trace), machine_(machine), options_(options) {
    FindChunks();
  }

  absl::StatusOr<MovementDecision> Run() {
    absl::Status first_error;
    for (const PlacementShape& seed : Seeds()) {
      const absl::Status tried = Try(seed);
      if (!tried.ok() && first_error.ok()) first_error = tried;
    }
    if (!best_.has_value()) {
      return first_error.ok() ? ResourceExhausted("no placement was tried") : first_error;
    }
    if (!options_.host_updates_only) Climb();
    Refine();
    best_->placements_tried = tried_;
    best_->hash = HashOf(*best_);
    return *std::move(best_);
  }

  absl::StatusOr<MovementDecision> Evaluate(const PlacementShape& shape, int64_t reserve) const {
    GANTRY_ASSIGN_OR_RETURN(MovementDecision decision, Place(shape));
    GANTRY_RETURN_IF_ERROR(Move(decision, reserve, kReserve));
    return decision;
  }

 private:
  // ---------------------------------------------------------------- facts

  void FindChunks() {
    std::vector<int64_t> first(trace_.chunks.size(), static_cast<int64_t>(trace_.moments.size()));
    std::vector<int32_t> chunk_of(trace_.block_slots.size(), -1);
    std::vector<bool> updated(trace_.chunks.size(), false);
    for (size_t c = 0; c < trace_.chunks.size(); ++c) {
      chunk_of[static_cast<size_t>(trace_.chunks[c].parameter)] = static_cast<int32_t>(c);
      const int32_t gradient = trace_.chunks[c].gradient;
      if (gradient >= 0) chunk_of[static_cast<size_t>(gradient)] = static_cast<int32_t>(c);
    }
    for (size_t m = 0; m < trace_.moments.size(); ++m) {
      if (trace_.moments[m].phase == Phase::kOptimizer) continue;
      for (const BlockUse& use : trace_.uses_of(trace_.moments[m])) {
        const int32_t c = chunk_of[static_cast<size_t>(use.block)];
        if (c < 0) continue;
        const auto index = static_cast<size_t>(c);
        // A gradient that leaves before the updates is another rank's.
        if (use.block == trace_.chunks[index].gradient) {
          updated[index] = use.access != BlockAccess::kConsume;
        }
        first[index] = std::min(first[index], static_cast<int64_t>(m));
      }
    }
    for (size_t c = 0; c < trace_.chunks.size(); ++c) {
      if (updated[c]) order_.push_back(static_cast<int32_t>(c));
    }
    std::ranges::stable_sort(order_, {},
                             [&first](int32_t c) { return first[static_cast<size_t>(c)]; });
    for (const int32_t c : order_) {
      states_max_ = std::max(states_max_,
                             UpdateFactsOf(trace_, trace_.chunks[static_cast<size_t>(c)]).states);
    }
  }

  int64_t updated() const { return static_cast<int64_t>(order_.size()); }
  bool in_files_possible() const { return machine_.has_file_tier && !machine_.unified; }

  // ---------------------------------------------------------------- one placement

  // Fills in what follows from the rest: how many states must lie in files.
  absl::StatusOr<PlacementShape> Complete(PlacementShape shape) const {
    shape.resident = std::clamp<int64_t>(shape.resident, 0, updated());
    shape.streamed = std::clamp<int64_t>(shape.streamed, 0, updated() - shape.resident);
    shape.next_forward =
        options_.next_forward ? std::clamp<int64_t>(shape.next_forward, 0, shape.streamed) : 0;
    shape.in_files = 0;
    shape.host_buffers = machine_.unified ? 0 : shape.host_buffers;
    if (machine_.unified || states_max_ == 0) return shape;
    const int64_t others = updated() - shape.resident;
    PlacementShape all_in_memory = shape;
    all_in_memory.host_buffers = 0;
    const HostRoom room = HostRoomOf(trace_, machine_, all_in_memory);
    if (room.states >= others * states_max_) {
      shape.host_buffers = 0;
      return shape;
    }
    if (!in_files_possible()) {
      return ResourceExhausted("host memory: ", room.slots_needed + others * states_max_,
                               " slots are needed for parameters and optimizer states; there are ",
                               machine_.host_slots, ", and no file tier");
    }
    // As many as wanted or fit, two at least.
    const int64_t most = std::max<int64_t>(room.states / states_max_, 2);
    shape.host_buffers = std::clamp<int64_t>(shape.host_buffers, 2, most);
    const HostRoom beside = HostRoomOf(trace_, machine_, shape);
    if (beside.states < 0) {
      return ResourceExhausted("host memory: ", beside.slots_needed,
                               " slots are needed for parameters and ", shape.host_buffers,
                               " buffers; there are ", machine_.host_slots);
    }
    shape.in_files = std::max<int64_t>(others - beside.states / states_max_, 0);
    return shape;
  }

  absl::StatusOr<MovementDecision> Place(const PlacementShape& wanted) const {
    MovementDecision decision;
    GANTRY_ASSIGN_OR_RETURN(decision.shape, Complete(wanted));
    const PlacementShape& shape = decision.shape;
    decision.choices = {.chunks = std::vector<ChunkChoice>(trace_.chunks.size()),
                        .wait_for_norm = options_.wait_for_norm,
                        .host_buffers = shape.host_buffers};
    decision.resident.assign(trace_.chunks.size(), false);
    const int64_t others = updated() - shape.resident;
    int64_t streamed = 0;
    for (int64_t i = 0; i < updated(); ++i) {
      const auto c = static_cast<size_t>(order_[static_cast<size_t>(i)]);
      ChunkChoice& choice = decision.choices.chunks[c];
      if (i < shape.resident) {
        choice.place = UpdatePlace::kDevice;
        decision.resident[c] = true;
        continue;
      }
      const int64_t j = i - shape.resident;
      if (Spread(j, others, shape.streamed)) {
        const bool next = Spread(streamed++, shape.streamed, shape.next_forward);
        choice.place = next ? UpdatePlace::kNextForward : UpdatePlace::kDevice;
      }
      choice.states_in_file = Spread(j, others, shape.in_files);
    }
    GANTRY_ASSIGN_OR_RETURN(decision.training, BuildProblem(trace_, machine_, decision.choices));
    return decision;
  }

  // Whether item i of n is one of `chosen`, evenly spread.
  static bool Spread(int64_t i, int64_t n, int64_t chosen) {
    return (i + 1) * chosen / n != i * chosen / n;
  }

  absl::Status Move(MovementDecision& decision, int64_t reserve, int64_t write_reserve) const {
    const MovementProblem& problem = decision.training.problem;
    std::vector<bool> pinned(problem.block_slots.size(), false);
    for (size_t c = 0; c < decision.resident.size(); ++c) {
      const int32_t states = decision.training.states[c];
      if (decision.resident[c] && states >= 0) pinned[static_cast<size_t>(states)] = true;
    }
    const UseCycle cycle = LinkUses(problem);
    decision.movement = {
        .keep = ChooseKeepSet(problem, cycle, {.reserve = reserve, .pinned = std::move(pinned)}),
        .write_reserve = write_reserve};
    GANTRY_RETURN_IF_ERROR(CheckHost(decision));
    GANTRY_ASSIGN_OR_RETURN(decision.predicted, Simulate(problem, decision.movement, {}));
    return absl::OkStatus();
  }

  // States that are to stay on the device, but leave it at some moment, need host memory too.
  absl::Status CheckHost(const MovementDecision& decision) const {
    if (machine_.unified || states_max_ == 0) return absl::OkStatus();
    int64_t leave = 0;
    for (size_t c = 0; c < decision.resident.size(); ++c) {
      if (!decision.resident[c] || decision.training.states[c] < 0) continue;
      const MovementProblem& problem = decision.training.problem;
      const auto& moment = problem.moments[static_cast<size_t>(decision.training.update_moment[c])];
      for (int64_t use = moment.first_use; use < moment.first_use + moment.use_count; ++use) {
        const auto u = static_cast<size_t>(use);
        if (problem.uses[u].block == decision.training.states[c] && !decision.movement.keep[u]) {
          ++leave;
        }
      }
    }
    const PlacementShape& shape = decision.shape;
    const int64_t slots = (updated() - shape.resident - shape.in_files + leave) * states_max_;
    const HostRoom room = HostRoomOf(trace_, machine_, shape);
    if (slots <= room.states) return absl::OkStatus();
    return ResourceExhausted("host memory: states of ", leave,
                             " chunks cannot stay on the device; ", room.slots_needed + slots,
                             " slots are needed, there are ", machine_.host_slots);
  }

  // ---------------------------------------------------------------- search

  // Tries a placement; keeps it when it is the best so far.
  absl::Status Try(const PlacementShape& wanted) {
    GANTRY_ASSIGN_OR_RETURN(const PlacementShape shape, Complete(wanted));
    const auto key =
        std::tuple(shape.resident, shape.streamed, shape.next_forward, shape.host_buffers);
    if (!seen_.insert({key, true}).second) return absl::OkStatus();
    ++tried_;
    absl::StatusOr<MovementDecision> decision = Evaluate(shape, kReserve);
    if (!decision.ok()) return decision.status();
    if (!best_.has_value() || decision->predicted.elapsed < best_->predicted.elapsed) {
      best_ = *std::move(decision);
    }
    return absl::OkStatus();
  }

  // Totals of the lanes when r chunks are resident and s streamed, without any waiting.
  double LaneBound(const PlacementShape& shape) const {
    const double slot = static_cast<double>(machine_.slot_bytes.count());
    const auto rate = [](int64_t value) { return value > 0 ? static_cast<double>(value) : 1e30; };
    const MachineRates& rates = machine_.rates;
    const auto host = static_cast<double>(updated() - shape.resident - shape.streamed);
    const auto streamed = static_cast<double>(shape.streamed);
    const auto states = static_cast<double>(states_max_);
    const double up = (host + streamed * states) * slot;
    const double down = up;
    const double traffic = (2.0 * states + 2.0) * slot;
    const double device = (streamed + static_cast<double>(shape.resident)) * traffic;
    const double files = static_cast<double>(shape.in_files) * states * slot;
    const double file_time = files / rate(rates.file_read.bytes_per_second) +
                             files / rate(rates.file_write.bytes_per_second);
    return std::max({up / rate(rates.host_to_device.bytes_per_second),
                     down / rate(rates.device_to_host.bytes_per_second),
                     host * traffic / rate(rates.host_update_bytes_per_second), file_time,
                     compute_seconds() + device / rate(rates.device_memory_bytes_per_second)});
  }

  double compute_seconds() const {
    double sum = 0;
    for (const Moment& moment : trace_.moments) {
      if (moment.phase != Phase::kOptimizer) {
        sum += static_cast<double>(moment.compute) * machine_.rates.compute_scale;
      }
    }
    return sum / 1e9;
  }

  // The most chunks whose states fit the device beside what every moment needs.
  int64_t ResidentMax() const {
    if (states_max_ == 0) return 0;
    int64_t least = machine_.device_slots;
    for (const Moment& moment : trace_.moments) {
      if (moment.phase != Phase::kOptimizer) {
        least = std::min(least, machine_.device_slots - moment.activation_slots);
      }
    }
    return std::clamp<int64_t>(least / states_max_, 0, updated());
  }

  std::vector<PlacementShape> Seeds() const {
    const int64_t buffers = kHostBuffers[1];
    std::vector<PlacementShape> seeds = {{.host_buffers = buffers}};
    if (machine_.unified) {
      // Updates run on the device there; what stays is the keep set's business.
      return seeds;
    }
    if (options_.host_updates_only || updated() == 0) {
      seeds.push_back({.host_buffers = kHostBuffers[0]});
      seeds.push_back({.host_buffers = kHostBuffers[2]});
      return seeds;
    }
    const int64_t most = ResidentMax();
    for (const int64_t resident : {int64_t{0}, most / 4, most / 2, 3 * most / 4, 9 * most / 10}) {
      seeds.push_back({.resident = resident, .host_buffers = buffers});
      // The fewest streamed chunks with which the lanes' totals are least.
      PlacementShape least = {.resident = resident, .host_buffers = buffers};
      double bound = 1e30;
      const int64_t others = updated() - resident;
      for (int64_t i = 0; i <= 64; ++i) {
        PlacementShape shape = least;
        shape.streamed = others * i / 64;
        const absl::StatusOr<PlacementShape> complete = Complete(shape);
        if (!complete.ok()) continue;
        const double time = LaneBound(*complete);
        if (time < bound * 0.9999) {
          bound = time;
          least.streamed = shape.streamed;
        }
      }
      if (least.streamed > 0) {
        seeds.push_back(least);
        least.next_forward = least.streamed / 2;
        seeds.push_back(least);
      }
    }
    return seeds;
  }

  // From the best seed along one coordinate at a time, with strides that shrink.
  void Climb() {
    if (updated() == 0 || machine_.unified) return;
    for (int64_t stride = std::max<int64_t>(updated() / 8, 1); stride > 0; stride /= 2) {
      bool better = true;
      while (better && tried_ < options_.placements_max) {
        const Nanoseconds before = best_->predicted.elapsed;
        const PlacementShape at = best_->shape;
        for (const PlacementShape& next : Neighbours(at, stride)) {
          if (tried_ >= options_.placements_max) break;
          static_cast<void>(Try(next));  // does not fit: not chosen
        }
        better = best_->predicted.elapsed < before;
      }
      if (updated() / std::max<int64_t>(stride, 1) >= 256) break;
    }
  }

  std::vector<PlacementShape> Neighbours(const PlacementShape& at, int64_t stride) const {
    std::vector<PlacementShape> next;
    const auto add = [&](int64_t resident, int64_t streamed, int64_t forward, int64_t buffers) {
      next.push_back({.resident = at.resident + resident,
                      .streamed = at.streamed + streamed,
                      .next_forward = at.next_forward + forward,
                      .host_buffers = buffers});
    };
    for (const int64_t sign : {1, -1}) {
      add(sign * stride, 0, 0, at.host_buffers);
      add(0, sign * stride, 0, at.host_buffers);
      add(0, 0, sign * stride, at.host_buffers);
      add(sign * stride, -sign * stride, 0, at.host_buffers);
      add(0, sign * stride, sign * stride, at.host_buffers);
    }
    if (at.host_buffers > 0) {
      add(0, 0, 0, at.host_buffers * 2);
      add(0, 0, 0, std::max<int64_t>(at.host_buffers / 2, 2));
    }
    return next;
  }

  // Other ways to move at the best placement.
  void Refine() {
    const MovementDecision base = *best_;
    const auto consider = [this](MovementDecision& decision) {
      if (decision.predicted.elapsed < best_->predicted.elapsed) best_ = decision;
    };
    for (const int64_t reserve : kReserves) {
      for (const int64_t write_reserve : kWriteReserves) {
        if (reserve == kReserve && write_reserve == kReserve) continue;
        MovementDecision decision = base;
        if (Move(decision, reserve, write_reserve).ok()) consider(decision);
      }
    }
    if (options_.keep_sets_only) return;
    for (const int64_t look_ahead : kLookAheads) {
      MovementDecision decision = base;
      decision.movement = {.mode = MovementPlan::Mode::kOnDemand, .look_ahead = look_ahead};
      absl::StatusOr<SimulatedStep> step =
          Simulate(decision.training.problem, decision.movement, {});
      if (!step.ok()) continue;
      decision.predicted = *std::move(step);
      consider(decision);
    }
  }

  static uint64_t HashOf(const MovementDecision& decision) {
    Hasher hasher;
    const auto add = [&hasher](int64_t value) {
      hasher.Update(std::as_bytes(std::span(&value, 1)));
    };
    for (const ChunkChoice& choice : decision.choices.chunks) {
      add(static_cast<int64_t>(choice.place));
      add(choice.states_in_file ? 1 : 0);
    }
    for (const bool resident : decision.resident) add(resident ? 1 : 0);
    add(decision.choices.host_buffers);
    add(decision.choices.wait_for_norm ? 1 : 0);
    add(static_cast<int64_t>(decision.movement.mode));
    add(decision.movement.write_reserve);
    add(decision.movement.look_ahead);
    for (const bool keep : decision.movement.keep) add(keep ? 1 : 0);
    return hasher.Digest64();
  }

  const Trace& trace_;
  const Machine& machine_;
  const PlannerOptions& options_;
  std::vector<int32_t> order_;  // updated chunks by the first use of their parameter
  int64_t states_max_ = 0;      // slots
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t>, bool> seen_;
  int64_t tried_ = 0;
  std::optional<MovementDecision> best_;
};

}  // namespace

HostRoom HostRoomOf(const Trace& trace, const Machine& machine, const PlacementShape& shape) {
  HostRoom room;
  int64_t states = 0;
  for (const TraceChunk& chunk : trace.chunks) {
    const UpdateFacts facts = UpdateFactsOf(trace, chunk);
    room.slots_needed += facts.parameter;
    states = std::max(states, facts.states);
  }
  room.slots_needed += kGradientSlots + shape.host_buffers * states;
  room.states = machine.host_slots - room.slots_needed;
  return room;
}

absl::StatusOr<MovementDecision> PlanMovement(const Trace& trace, const Machine& machine,
                                              const PlannerOptions& options) {
  return Planner(trace, machine, options).Run();
}

absl::StatusOr<MovementDecision> EvaluateShape(const Trace& trace, const Machine& machine,
                                               const PlannerOptions& options,
                                               const PlacementShape& shape) {
  return Planner(trace, machine, options).Evaluate(shape, kReserve);
}

}  // namespace gantry
