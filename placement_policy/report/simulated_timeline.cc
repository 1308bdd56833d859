#include "placement_policy/report/simulated_timeline.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/report/step_timeline.h"
#include "placement_policy/simulator.h"
#include "placement_policy/tier_bytes.h"
#include "placement_policy/trace.h"
#include "placement_policy/training_problem.h"

namespace gantry {
namespace {

// What a block of the problem is.
struct BlockRole {
  ByteKind kind = ByteKind::kParameters;
  int64_t chunk = -1;
};

// Slots of one tier over time, from changes in any order.
class Levels {
 public:
  void Add(Nanoseconds time, ByteKind kind, int64_t slots) {
    changes_[time][static_cast<size_t>(kind)] += slots;
  }

  // From `begin` to `end`, beside what is always there. Times count from `begin`.
  std::vector<TierPoint> Points(const KindSlots& always, Nanoseconds begin, Nanoseconds end) const {
    std::vector<TierPoint> points = {{.time = 0, .slots = always}};
    for (const auto& [time, change] : changes_) {
      if (time >= end) break;
      TierPoint next = points.back();
      for (size_t kind = 0; kind < change.size(); ++kind) next.slots[kind] += change[kind];
      if (time <= begin) {
        points.back().slots = next.slots;
      } else if (next.slots != points.back().slots) {
        next.time = time - begin;
        points.push_back(next);
      }
    }
    return points;
  }

 private:
  std::map<Nanoseconds, KindSlots> changes_;
};

KindSlots SlotsOf(const KindBytes& bytes, Bytes slot_bytes) {
  const auto slots = [slot_bytes](Bytes of) { return CeilDiv(of.count(), slot_bytes.count()); };
  KindSlots result{};
  result[static_cast<size_t>(ByteKind::kParameters)] = slots(bytes.parameters);
  result[static_cast<size_t>(ByteKind::kStates)] = slots(bytes.states);
  result[static_cast<size_t>(ByteKind::kActivations)] = slots(bytes.activations);
  return result;
}

class Builder {
 public:
  Builder(const SimulatedTimelineInput& input, SimulatedStep step)
      : input_(input),
        trace_(*input.trace),
        problem_(input.decision->training.problem),
        count_(std::ssize(problem_.moments)),
        step_(std::move(step)),
        roles_(problem_.block_slots.size()),
        updating_(problem_.block_slots.size(), -1) {
    SetRoles();
  }

  StepTimeline Build() {
    FindWindow();
    timeline_.slot_bytes = input_.machine->slot_bytes;
    timeline_.duration = end_ - begin_;
    AddOperators();
    AddWaits();
    AddMoves();
    AddTiers();
    ArrangeMoves(timeline_);
    return std::move(timeline_);
  }

 private:
  void SetRoles() {
    const TrainingProblem& training = input_.decision->training;
    const auto set = [this](const std::vector<int32_t>& blocks, ByteKind kind) {
      for (size_t c = 0; c < blocks.size(); ++c) {
        if (blocks[c] < 0) continue;
        roles_[static_cast<size_t>(blocks[c])] = {.kind = kind, .chunk = static_cast<int64_t>(c)};
      }
    };
    set(training.parameter, ByteKind::kParameters);
    set(training.gradient, ByteKind::kGradients);
    set(training.states, ByteKind::kStates);
    for (const std::vector<int32_t>& blocks : training.activations) {
      for (const int32_t block : blocks) {
        roles_[static_cast<size_t>(block)] = {.kind = ByteKind::kActivations, .chunk = -1};
      }
    }
    for (size_t u = 0; u < problem_.updates.size(); ++u) {
      updating_[static_cast<size_t>(problem_.updates[u].gradient)] = static_cast<int32_t>(u);
    }
  }

  // The last step but one; the only one when there are no more.
  void FindWindow() {
    step_number_ = std::max<int64_t>(step_.steps - 2, 0);
    for (const SimulatedEvent& event : step_.events) {
      if (event.kind != SimulatedEvent::Kind::kMoment) continue;
      if (event.moment == step_number_ * count_ - 1) begin_ = event.end;
      if (event.moment == (step_number_ + 1) * count_ - 1) end_ = event.end;
    }
  }

  bool InWindow(Nanoseconds begin, Nanoseconds end) const { return begin < end_ && end > begin_; }

  int32_t NameIndex(const std::string& name) {
    const auto [found, is_new] = names_.emplace(name, static_cast<int32_t>(timeline_.names.size()));
    if (is_new) timeline_.names.push_back(name);
    return found->second;
  }

  TimelineOperator OperatorAt(size_t moment) {
    const int64_t source = problem_.moments[moment].source;
    if (source < 0) return {.name = NameIndex("update on the device"), .phase = Phase::kOptimizer};
    const Moment& of = trace_.moments[static_cast<size_t>(source)];
    return {.name = NameIndex(trace_.names[static_cast<size_t>(of.name)]),
            .phase = of.phase,
            .micro_batch = of.micro_batch,
            .layer = of.layer};
  }

  void AddOperators() {
    timeline_.operators.resize(static_cast<size_t>(count_));
    for (const SimulatedEvent& event : step_.events) {
      const bool shown =
          event.kind == SimulatedEvent::Kind::kMoment && event.moment / count_ == step_number_;
      if (!shown) continue;
      const auto moment = static_cast<size_t>(event.moment % count_);
      TimelineOperator op = OperatorAt(moment);
      op.begin = event.begin - begin_;
      op.end = event.end - begin_;
      timeline_.operators[moment] = op;
    }
  }

  void AddWaits() {
    for (const SimulatedWait& wait : step_.waits) {
      if (!InWindow(wait.begin, wait.end)) continue;
      timeline_.waits.push_back({.cause = wait.cause,
                                 .begin = std::max(wait.begin, begin_) - begin_,
                                 .end = std::min(wait.end, end_) - begin_});
    }
  }

  // ---------------------------------------------------------------- moves

  int32_t SubjectOf(const SimulatedEvent& event) {
    const bool update = event.update >= 0;
    const auto key = std::pair(update ? event.update : event.block, update);
    const auto [found, is_new] =
        subjects_.emplace(key, static_cast<int32_t>(timeline_.subjects.size()));
    if (!is_new) return found->second;
    if (update) {
      const int32_t parameter = problem_.updates[static_cast<size_t>(event.update)].parameter;
      timeline_.subjects.push_back(
          {.what = "optimizer states", .chunk = roles_[static_cast<size_t>(parameter)].chunk});
      return found->second;
    }
    const BlockRole& role = roles_[static_cast<size_t>(event.block)];
    constexpr std::array<const char*, kByteKindCount> kWhat = {
        "parameter", "gradient", "optimizer states", "saved activation", "block"};
    timeline_.subjects.push_back(
        {.what = kWhat[static_cast<size_t>(role.kind)], .chunk = role.chunk});
    return found->second;
  }

  MoveReason ReasonOf(const SimulatedEvent& event) const {
    switch (event.lane) {
      case SimulatedLane::kHostToDevice:
        return MoveReason::kUse;
      case SimulatedLane::kDeviceToHost:
        return updating_[static_cast<size_t>(event.block)] >= 0 ? MoveReason::kUpdate
                                                                : MoveReason::kRoom;
      case SimulatedLane::kHostUpdate:
        return MoveReason::kUpdate;
      case SimulatedLane::kFileRead:
        return event.update >= 0 ? MoveReason::kStates : MoveReason::kUse;
      case SimulatedLane::kFileWrite:
        return MoveReason::kSave;
    }
    return MoveReason::kUse;
  }

  int64_t BytesOf(const SimulatedEvent& event) const {
    if (event.update < 0) return problem_.block_bytes(event.block);
    const MovementProblem::HostUpdate& update = problem_.updates[static_cast<size_t>(event.update)];
    switch (event.lane) {
      case SimulatedLane::kFileRead:
        return update.file_bytes;
      case SimulatedLane::kFileWrite: {  // a parameter whose home is the file goes with its states
        const bool both = problem_.in_file[static_cast<size_t>(update.parameter)];
        return update.file_bytes + (both ? problem_.block_bytes(update.parameter) : 0);
      }
      default:
        return problem_.block_bytes(update.gradient);
    }
  }

  void AddMoves() {
    for (const SimulatedEvent& event : step_.events) {
      if (event.kind != SimulatedEvent::Kind::kTransfer || !InWindow(event.begin, event.end)) {
        continue;
      }
      TimelineMove move{.lane = ShownLane(*input_.machine, event.lane),
                        .begin = event.begin - begin_,
                        .end = event.end - begin_,
                        .bytes = BytesOf(event),
                        .subject = SubjectOf(event),
                        .reason = ReasonOf(event)};
      // Far beyond: what it makes is never used again. A write to a file has no deadline.
      const bool has_use = event.moment < (step_.steps + 2) * count_ && event.moment >= 0;
      if (has_use && move.reason != MoveReason::kSave) {
        move.serves = static_cast<int32_t>(event.moment % count_);
        move.serves_step = event.moment / count_ - step_number_;
      }
      timeline_.moves.push_back(move);
    }
  }

  // ---------------------------------------------------------------- tiers

  int64_t Slots(int32_t block) const { return problem_.block_slots[static_cast<size_t>(block)]; }

  void AddTransfer(const SimulatedEvent& event) {
    if (event.block >= 0 && (event.lane == SimulatedLane::kHostToDevice ||
                             event.lane == SimulatedLane::kDeviceToHost)) {
      const ByteKind kind = roles_[static_cast<size_t>(event.block)].kind;
      const int64_t slots = Slots(event.block);
      device_.Add(event.begin, ByteKind::kBuffers, slots);
      device_.Add(event.end, ByteKind::kBuffers, -slots);
      device_.Add(event.end, kind, slots);
      // What goes down has been there before.
      if (event.lane == SimulatedLane::kDeviceToHost) device_.Add(event.begin, kind, -slots);
    }
    AddBuffer(event);
  }

  // A buffer is taken when a read or a way down begins, and free when what it held is written to
  // its file or on the device.
  void AddBuffer(const SimulatedEvent& event) {
    const int64_t slots = CeilDiv(BytesOf(event), problem_.slot_bytes);
    if (event.update >= 0) {
      const int64_t states = CeilDiv(problem_.updates[static_cast<size_t>(event.update)].file_bytes,
                                     problem_.slot_bytes);
      if (event.lane == SimulatedLane::kFileRead) {
        host_.Add(event.begin, ByteKind::kBuffers, states);
      } else if (event.lane == SimulatedLane::kFileWrite) {
        host_.Add(event.end, ByteKind::kBuffers, -states);
      }
      return;
    }
    if (!problem_.in_file[static_cast<size_t>(event.block)]) return;
    const bool takes =
        event.lane == SimulatedLane::kFileRead || event.lane == SimulatedLane::kDeviceToHost;
    host_.Add(takes ? event.begin : event.end, ByteKind::kBuffers, takes ? slots : -slots);
  }

  // Gradients on the host, from their way down until their update has ended.
  void AddHostGradient(const SimulatedEvent& event) {
    if (event.lane == SimulatedLane::kDeviceToHost) {
      const int32_t u = updating_[static_cast<size_t>(event.block)];
      if (u < 0 || std::exchange(gradient_there_[static_cast<size_t>(u)], 1) != 0) return;
      host_.Add(event.begin, ByteKind::kGradients, Slots(event.block));
    } else if (event.lane == SimulatedLane::kHostUpdate) {
      const auto u = static_cast<size_t>(event.update);
      if (std::exchange(gradient_there_[u], 0) == 0) return;
      host_.Add(event.end, ByteKind::kGradients, -Slots(problem_.updates[u].gradient));
    }
  }

  // Activations that cannot leave: while the next moment waits, what it shares with the last.
  void AddMoment(const SimulatedEvent& event) {
    const MovementProblem::Moment& moment =
        problem_.moments[static_cast<size_t>(event.moment % count_)];
    const MovementProblem::Moment& next =
        problem_.moments[static_cast<size_t>((event.moment + 1) % count_)];
    const int64_t held = input_.machine->device_slots - moment.capacity;
    const int64_t shared = std::min(held, input_.machine->device_slots - next.capacity);
    device_.Add(event.begin, ByteKind::kActivations, held - shared_);
    device_.Add(event.end, ByteKind::kActivations, shared - held);
    shared_ = shared;
    for (const BlockUse& use : problem_.uses_of(moment)) {
      if (use.access != BlockAccess::kCreate) continue;
      device_.Add(event.begin, roles_[static_cast<size_t>(use.block)].kind, Slots(use.block));
    }
  }

  // The simulator lets gradients wait on the host for their updates however many they are.
  void NoteFullHost() {
    const TierCurve& host = timeline_.tiers.back();
    const Bytes peak = PeakOf(host, timeline_.slot_bytes);
    if (peak <= host.budget) return;
    timeline_.notes.push_back(
        StrCat("The host holds up to ", peak, ", ", peak - host.budget,
               " more than its budget: the simulation does not bound gradients that wait there for "
               "their updates, and a real step waits for room."));
  }

  void AddTiers() {
    gradient_there_.assign(problem_.updates.size(), 0);
    std::ranges::stable_sort(step_.events, {}, &SimulatedEvent::begin);
    for (const SimulatedEvent& event : step_.events) {
      if (event.kind == SimulatedEvent::Kind::kMoment) {
        AddMoment(event);
      } else {
        AddTransfer(event);
        AddHostGradient(event);
      }
    }
    for (const SimulatedDrop& drop : step_.drops) {
      device_.Add(drop.time, roles_[static_cast<size_t>(drop.block)].kind, -Slots(drop.block));
    }
    const Machine& machine = *input_.machine;
    const TierBytes homes = TierBytesOf(trace_, machine, *input_.decision);
    const auto add = [&](std::string name, Bytes budget, const Levels& levels,
                         const KindSlots& always) {
      timeline_.tiers.push_back({.name = std::move(name),
                                 .budget = budget,
                                 .points = levels.Points(always, begin_, end_)});
    };
    add(machine.unified ? "memory" : "device", machine.slot_bytes * machine.device_slots, device_,
        KindSlots{});
    if (!machine.unified) {
      add("host", machine.slot_bytes * machine.host_slots, host_,
          SlotsOf(homes.host, machine.slot_bytes));
      NoteFullHost();
    }
    if (machine.has_file_tier) {
      add("files", input_.file_bytes, Levels(), SlotsOf(homes.files, machine.slot_bytes));
    }
  }

  const SimulatedTimelineInput& input_;
  const Trace& trace_;
  const MovementProblem& problem_;
  const int64_t count_;  // moments of a step
  SimulatedStep step_;
  std::vector<BlockRole> roles_;      // by block
  std::vector<int32_t> updating_;     // by block: the update whose gradient it is; -1
  std::vector<char> gradient_there_;  // by update: on the host

  int64_t step_number_ = 0;
  Nanoseconds begin_ = 0;  // of the step
  Nanoseconds end_ = 0;
  std::map<std::string, int32_t> names_;
  std::map<std::pair<int32_t, bool>, int32_t> subjects_;
  Levels device_;
  Levels host_;
  int64_t shared_ = 0;  // activations held while the next moment waits
  StepTimeline timeline_;
};

}  // namespace

absl::StatusOr<StepTimeline> SimulatedTimeline(const SimulatedTimelineInput& input) {
  GANTRY_ASSIGN_OR_RETURN(SimulatedStep step, Simulate(input.decision->training.problem,
                                                       input.decision->movement, {.record = true}));
  return Builder(input, std::move(step)).Build();
}

}  // namespace gantry
