#include "trainer/booster/measured_timeline.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/strings.h"
#include "base/tier.h"
#include "chunk/block.h"
#include "device/slot_pool.h"
#include "gemini/engine.h"
#include "offload/transfer_engine.h"
#include "placement_policy/report/step_timeline.h"
#include "placement_policy/simulator.h"
#include "placement_policy/trace.h"
#include "trainer/booster/step_recorder.h"

namespace gantry {
namespace {

std::optional<SimulatedLane> LaneOf(std::string_view track) {
  constexpr std::array<std::pair<TransferLane, SimulatedLane>, kTransferLaneCount> kLanes = {{
      {TransferLane::kHostToDevice, SimulatedLane::kHostToDevice},
      {TransferLane::kDeviceToHost, SimulatedLane::kDeviceToHost},
      {TransferLane::kFileRead, SimulatedLane::kFileRead},
      {TransferLane::kFileWrite, SimulatedLane::kFileWrite},
  }};
  for (const auto& [transfer, lane] : kLanes) {
    if (Name(transfer) == track) return lane;
  }
  if (track == "update") return SimulatedLane::kHostUpdate;
  return std::nullopt;
}

SimulatedStall CauseOf(std::string_view name) {
  if (name == Name(StallCause::kUpdate)) return SimulatedStall::kUpdate;
  if (name == Name(StallCause::kNorm)) return SimulatedStall::kNorm;
  if (name == Name(StallCause::kRoom)) return SimulatedStall::kRoom;
  return SimulatedStall::kFetch;
}

// "gradient of chunk#3 (demand)" in parts.
struct MoveName {
  std::string_view what;
  int64_t chunk = -1;
  std::string_view priority = {};
};

MoveName ParseMoveName(std::string_view name) {
  constexpr std::string_view kOf = " of chunk#";
  const size_t at = name.find(kOf);
  if (at == std::string_view::npos) return {.what = name};
  const char* const digits = name.data() + at + kOf.size();
  const char* const end = name.data() + name.size();
  MoveName parts{.what = name.substr(0, at)};
  const auto [stop, error] = std::from_chars(digits, end, parts.chunk);
  if (error != std::errc()) return {.what = name};
  std::string_view rest(stop, static_cast<size_t>(end - stop));
  if (rest.size() > 3 && rest.starts_with(" (") && rest.back() == ')') {
    parts.priority = rest.substr(2, rest.size() - 3);
  }
  return parts;
}

MoveReason ReasonOf(SimulatedLane lane, const MoveName& name) {
  switch (lane) {
    case SimulatedLane::kDeviceToHost:
      return name.what == Name(StateKind::kGradient) ? MoveReason::kUpdate : MoveReason::kRoom;
    case SimulatedLane::kFileWrite:
      return MoveReason::kSave;
    case SimulatedLane::kHostUpdate:
      return MoveReason::kUpdate;
    case SimulatedLane::kHostToDevice:
    case SimulatedLane::kFileRead:
      break;
  }
  if (name.priority == "demand") return MoveReason::kDemand;
  if (name.priority == "prefetch") return MoveReason::kPrefetch;
  return name.priority == "update" ? MoveReason::kStates : MoveReason::kUse;
}

ByteKind KindOf(MemoryTag tag) {
  switch (tag) {
    case MemoryTag::kParameter:
      return ByteKind::kParameters;
    case MemoryTag::kGradient:
      return ByteKind::kGradients;
    case MemoryTag::kOptimizer:
      return ByteKind::kStates;
    case MemoryTag::kActivation:
      return ByteKind::kActivations;
    case MemoryTag::kStaging:
      return ByteKind::kBuffers;
  }
  return ByteKind::kBuffers;
}

class Builder {
 public:
  explicit Builder(const MeasuredTimelineInput& input) : input_(input), step_(*input.step) {}

  StepTimeline Build() {
    timeline_.duration = step_.end - step_.begin;
    timeline_.slot_bytes = input_.slot_bytes;
    for (const RecordedSlice& slice : step_.slices) Add(slice);
    std::ranges::stable_sort(timeline_.operators, {}, &TimelineOperator::begin);
    std::ranges::stable_sort(timeline_.waits, {}, &TimelineWait::begin);
    NameLayers();
    AddTier(Tier::kDevice, input_.device_budget);
    if (input_.host_budget > Bytes(0)) AddTier(Tier::kHost, input_.host_budget);
    if (step_.dropped > 0) {
      timeline_.notes.push_back(
          StrCat(step_.dropped, " events of the step found no room and are not drawn"));
    }
    ArrangeMoves(timeline_);
    return std::move(timeline_);
  }

 private:
  void Add(const RecordedSlice& slice) {
    const Nanoseconds begin = slice.begin - step_.begin;
    const Nanoseconds end = slice.end - step_.begin;
    if (slice.track == "stall") {
      timeline_.waits.push_back({.cause = CauseOf(slice.name),
                                 .begin = std::max<Nanoseconds>(begin, 0),
                                 .end = std::min(end, timeline_.duration)});
      return;
    }
    if (slice.track.starts_with("compute ")) {
      const bool backward = slice.track == "compute backward";
      timeline_.operators.push_back({.begin = begin,
                                     .end = end,
                                     .name = NameIndex(slice.name),
                                     .phase = backward ? Phase::kBackward : Phase::kForward});
      return;
    }
    const std::optional<SimulatedLane> lane = LaneOf(slice.track);
    if (!lane.has_value()) return;
    const MoveName name = ParseMoveName(slice.name);
    timeline_.moves.push_back({.lane = *lane,
                               .begin = begin,
                               .end = end,
                               .bytes = *lane == SimulatedLane::kHostUpdate ? 0 : BytesOf(name),
                               .subject = SubjectOf(name),
                               .reason = ReasonOf(*lane, name)});
  }

  int32_t NameIndex(const std::string& name) {
    const auto [found, is_new] = names_.emplace(name, static_cast<int32_t>(timeline_.names.size()));
    if (is_new) timeline_.names.push_back(name);
    return found->second;
  }

  int32_t SubjectOf(const MoveName& name) {
    const auto [found, is_new] = subjects_.emplace(std::pair(std::string(name.what), name.chunk),
                                                   static_cast<int32_t>(subjects_.size()));
    if (is_new) {
      timeline_.subjects.push_back({.what = std::string(name.what), .chunk = name.chunk});
    }
    return found->second;
  }

  // Blocks of a trace are numbered by kind, then by chunk.
  int64_t BytesOf(const MoveName& name) const {
    if (input_.trace == nullptr || name.chunk < 0) return 0;
    const auto chunks = static_cast<int64_t>(input_.trace->chunks.size());
    for (int kind = 0; kind < kStateKindCount; ++kind) {
      if (Name(static_cast<StateKind>(kind)) != name.what || name.chunk >= chunks) continue;
      const auto block = static_cast<size_t>(kind * chunks + name.chunk);
      if (block >= input_.trace->block_slots.size()) return 0;
      return input_.trace->block_slots[block] * input_.slot_bytes.count();
    }
    return 0;
  }

  // The trace knows more of the operators, when they are the same.
  void NameLayers() {
    if (input_.trace == nullptr) return;
    std::vector<const Moment*> moments;
    for (const Moment& moment : input_.trace->moments) {
      if (moment.phase != Phase::kOptimizer) moments.push_back(&moment);
    }
    if (moments.size() != timeline_.operators.size()) return;
    for (size_t i = 0; i < moments.size(); ++i) {
      timeline_.operators[i].micro_batch = moments[i]->micro_batch;
      timeline_.operators[i].layer = moments[i]->layer;
    }
  }

  void AddTier(Tier tier, Bytes budget) {
    std::map<std::string, ByteKind, std::less<>> kinds;
    for (int tag = 0; tag < kMemoryTagCount; ++tag) {
      const auto of = static_cast<MemoryTag>(tag);
      kinds.emplace(StrCat(Name(tier), " ", Name(of), " bytes"), KindOf(of));
    }
    const bool is_all = input_.host_budget == Bytes(0);
    TierCurve curve{.name = is_all ? std::string("memory") : std::string(Name(tier)),
                    .budget = budget,
                    .points = {TierPoint{}}};
    for (const RecordedCounter& counter : step_.counters) {
      const auto kind = kinds.find(counter.name);
      if (kind == kinds.end() || counter.time > step_.end) continue;
      const Nanoseconds time = counter.time <= step_.begin ? 0 : counter.time - step_.begin;
      if (curve.points.back().time < time) {
        curve.points.push_back({.time = time, .slots = curve.points.back().slots});
      }
      curve.points.back().slots[static_cast<size_t>(kind->second)] =
          counter.value / input_.slot_bytes.count();
    }
    timeline_.tiers.push_back(std::move(curve));
  }

  const MeasuredTimelineInput& input_;
  const RecordedStep& step_;
  std::map<std::string, int32_t> names_;
  std::map<std::pair<std::string, int64_t>, int32_t> subjects_;
  StepTimeline timeline_;
};

}  // namespace

StepTimeline MeasuredTimeline(const MeasuredTimelineInput& input) { return Builder(input).Build(); }

}  // namespace gantry
