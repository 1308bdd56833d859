#include "placement_policy/tier_bytes.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/simulator.h"
#include "placement_policy/trace.h"
#include "placement_policy/training_problem.h"

namespace gantry {
namespace {

enum class Kind : uint8_t { kParameter, kGradient, kStates, kActivation };
constexpr int kKindCount = 4;
using KindSlots = std::array<int64_t, kKindCount>;

size_t Index(Kind kind) { return static_cast<size_t>(kind); }
int64_t Sum(const KindSlots& slots) {
  return std::accumulate(slots.begin(), slots.end(), int64_t{0});
}

class Counter {
 public:
  Counter(const Trace& trace, const Machine& machine, const MovementDecision& decision)
      : trace_(trace),
        machine_(machine),
        decision_(decision),
        problem_(decision.training.problem),
        cycle_(LinkUses(problem_)) {
    SetKinds();
  }

  TierBytes Run() const {
    TierBytes tiers;
    CountDevice(tiers);
    CountHomes(tiers);
    return tiers;
  }

 private:
  void SetKinds() {
    kinds_.assign(problem_.block_slots.size(), Kind::kParameter);
    const auto set = [this](const std::vector<int32_t>& blocks, Kind kind) {
      for (const int32_t block : blocks) {
        if (block >= 0) kinds_[static_cast<size_t>(block)] = kind;
      }
    };
    set(decision_.training.gradient, Kind::kGradient);
    set(decision_.training.states, Kind::kStates);
    for (const std::vector<int32_t>& blocks : decision_.training.activations) {
      set(blocks, Kind::kActivation);
    }
  }

  // Blocks stay between uses when the plan says so; on demand nobody knows before.
  bool Kept(size_t use) const {
    return decision_.movement.mode == MovementPlan::Mode::kKeepSet &&
           (cycle_.links[use].gap == Gap::kStays ||
            (cycle_.links[use].gap == Gap::kSame && use < decision_.movement.keep.size() &&
             decision_.movement.keep[use]));
  }
  int64_t SlotsOf(size_t use) const {
    return problem_.block_slots[static_cast<size_t>(problem_.uses[use].block)];
  }
  Kind KindOf(size_t use) const { return kinds_[static_cast<size_t>(problem_.uses[use].block)]; }

  void CountDevice(TierBytes& tiers) const {
    const auto moments = static_cast<int64_t>(problem_.moments.size());
    // What kept gaps begin to add at a moment, over two steps, so that gaps may cross the border.
    std::vector<KindSlots> change(static_cast<size_t>(2 * moments + 1));
    std::vector<KindSlots> used(static_cast<size_t>(moments));
    for (size_t use = 0; use < problem_.uses.size(); ++use) {
      const UseCycle::Link& link = cycle_.links[use];
      used[static_cast<size_t>(link.moment)][Index(KindOf(use))] += SlotsOf(use);
      if (!Kept(use)) continue;
      change[static_cast<size_t>(link.moment + 1)][Index(KindOf(use))] += SlotsOf(use);
      change[static_cast<size_t>(link.moment + link.distance)][Index(KindOf(use))] -= SlotsOf(use);
    }
    std::vector<KindSlots> held(static_cast<size_t>(moments));
    KindSlots between{};
    for (int64_t t = 0; t < 2 * moments; ++t) {
      for (int kind = 0; kind < kKindCount; ++kind) {
        const auto k = static_cast<size_t>(kind);
        between[k] += change[static_cast<size_t>(t)][k];
        held[static_cast<size_t>(t % moments)][k] += between[k];
      }
    }
    int64_t fullest = 0;
    int64_t least_room = machine_.device_slots + 1;
    for (int64_t t = 0; t < moments; ++t) {
      const auto at = static_cast<size_t>(t);
      const int64_t room = problem_.moments[at].capacity - Sum(held[at]) - Sum(used[at]);
      if (room < least_room) {
        least_room = room;
        fullest = t;
      }
    }
    const auto at = static_cast<size_t>(fullest);
    tiers.fullest_moment = fullest;
    KindSlots together = held[at];
    for (size_t kind = 0; kind < together.size(); ++kind) together[kind] += used[at][kind];
    // Beside those that may leave: those that cannot.
    together[Index(Kind::kActivation)] += machine_.device_slots - problem_.moments[at].capacity;
    tiers.device = InBytes(together);
    tiers.device.buffers = machine_.slot_bytes * std::max<int64_t>(least_room, 0);
  }

  // Blocks that leave the device at some moment, by block.
  std::vector<bool> Leaving() const {
    std::vector<bool> leaving(problem_.block_slots.size(), false);
    for (size_t use = 0; use < problem_.uses.size(); ++use) {
      const Gap gap = cycle_.links[use].gap;
      if (gap == Gap::kNew || (gap == Gap::kSame && !Kept(use))) {
        leaving[static_cast<size_t>(problem_.uses[use].block)] = true;
      }
    }
    return leaving;
  }

  void CountHomes(TierBytes& tiers) const {
    const std::vector<bool> leaving = Leaving();
    KindSlots host{};
    KindSlots files{};
    for (size_t c = 0; c < trace_.chunks.size(); ++c) {
      const UpdateFacts facts = UpdateFactsOf(trace_, trace_.chunks[c]);
      if (machine_.unified) {
        AddWhenLeaving(decision_.training.parameter[c], leaving, files);
        AddWhenLeaving(decision_.training.states[c], leaving, files);
        continue;
      }
      const ChunkChoice& choice = decision_.choices.chunks[c];
      KindSlots& parameter_home = choice.parameter_in_file ? files : host;
      if (!choice.parameter_stays) parameter_home[Index(Kind::kParameter)] += facts.parameter;
      if (facts.states == 0) continue;
      const int32_t states = decision_.training.states[c];
      if (states >= 0) {
        AddWhenLeaving(states, leaving, decision_.choices.chunks[c].states_in_file ? files : host);
      } else if (decision_.training.gradient[c] >= 0) {  // updated, on the host
        auto& home = decision_.choices.chunks[c].states_in_file ? files : host;
        home[Index(Kind::kStates)] += facts.states;
      }
    }
    AddActivations(host, files);
    tiers.files = InBytes(files);
    tiers.host = InBytes(host);
    if (machine_.unified) return;
    // What passes through: beside parameters, and beside nothing else that is asked for.
    int64_t parameters = 0;
    for (const TraceChunk& chunk : trace_.chunks) {
      parameters += UpdateFactsOf(trace_, chunk).parameter;
    }
    tiers.host.gradients =
        machine_.slot_bytes * (HostRoomOf(trace_, machine_, {}).slots_needed - parameters);
    PlacementShape without = decision_.shape;
    without.host_buffers = 0;
    tiers.host.buffers =
        machine_.slot_bytes * (HostRoomOf(trace_, machine_, decision_.shape).slots_needed -
                               HostRoomOf(trace_, machine_, without).slots_needed);
  }

  // A unified machine's only other tier is files.
  void AddActivations(KindSlots& host, KindSlots& files) const {
    KindSlots& beside = machine_.unified ? files : host;
    for (size_t i = 0; i < decision_.choices.activations.size(); ++i) {
      const ActivationPlace place = decision_.choices.activations[i];
      const int64_t slots = trace_.activations[i].slots;
      if (place == ActivationPlace::kHost) beside[Index(Kind::kActivation)] += slots;
      if (place == ActivationPlace::kFile) files[Index(Kind::kActivation)] += slots;
    }
  }

  void AddWhenLeaving(int32_t block, const std::vector<bool>& leaving, KindSlots& home) const {
    if (block < 0 || !leaving[static_cast<size_t>(block)]) return;
    home[Index(kinds_[static_cast<size_t>(block)])] +=
        problem_.block_slots[static_cast<size_t>(block)];
  }

  KindBytes InBytes(const KindSlots& slots) const {
    return {.parameters = machine_.slot_bytes * slots[Index(Kind::kParameter)],
            .gradients = machine_.slot_bytes * slots[Index(Kind::kGradient)],
            .states = machine_.slot_bytes * slots[Index(Kind::kStates)],
            .activations = machine_.slot_bytes * slots[Index(Kind::kActivation)]};
  }

  const Trace& trace_;
  const Machine& machine_;
  const MovementDecision& decision_;
  const MovementProblem& problem_;
  const UseCycle cycle_;
  std::vector<Kind> kinds_;  // by block of the problem
};

}  // namespace

TierBytes TierBytesOf(const Trace& trace, const Machine& machine,
                      const MovementDecision& decision) {
  GANTRY_CHECK(!trace.chunks.empty());
  return Counter(trace, machine, decision).Run();
}

}  // namespace gantry
