#include "placement_policy/report/step_timeline.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/strings.h"
#include "placement_policy/machine.h"
#include "placement_policy/simulator.h"

namespace gantry {
namespace {

// Merges neighbours of a sorted list until at most `most` are left: `merge(kept, next)` says
// whether it could. Whoever is merged, the list gets shorter by a share of what is too much.
// Returns, for each element before, where it is now.
template <typename T, typename Merge>
std::vector<int32_t> MergeNeighbours(std::vector<T>& list, int64_t group, Merge merge) {
  std::vector<int32_t> now(list.size());
  std::vector<T> kept;
  int64_t members = 0;  // of the last one kept
  for (size_t i = 0; i < list.size(); ++i) {
    if (!kept.empty() && members < group && merge(kept.back(), list[i])) {
      ++members;
    } else {
      kept.push_back(list[i]);
      members = 1;
    }
    now[i] = static_cast<int32_t>(kept.size()) - 1;
  }
  list = std::move(kept);
  return now;
}

void LimitOperators(int64_t most, StepTimeline& timeline) {
  const auto before = std::ssize(timeline.operators);
  if (before <= most) return;
  const int64_t group = CeilDiv(before, std::max<int64_t>(most / 2, 1));
  std::vector<TimelineOperator> operators = timeline.operators;
  std::vector<int32_t> now =
      MergeNeighbours(operators, group, [](TimelineOperator& kept, const TimelineOperator& next) {
        if (kept.phase != next.phase) return false;
        kept.end = next.end;
        kept.count += next.count;
        return true;
      });
  if (std::ssize(operators) > most) {  // phases alternate
    operators = timeline.operators;
    now = MergeNeighbours(operators, group, [](TimelineOperator& kept, const TimelineOperator& n) {
      kept.end = n.end;
      kept.count += n.count;
      return true;
    });
  }
  timeline.operators = std::move(operators);
  for (TimelineMove& move : timeline.moves) {
    if (move.serves >= 0) move.serves = now[static_cast<size_t>(move.serves)];
  }
  timeline.notes.push_back(StrCat(before, " operators are drawn as ", timeline.operators.size(),
                                  ": neighbours are merged"));
}

void LimitMoves(int64_t most, StepTimeline& timeline) {
  const auto before = std::ssize(timeline.moves);
  if (before <= most) return;
  std::ranges::stable_sort(timeline.moves, {}, [](const TimelineMove& move) {
    return std::tuple(move.lane, move.row, move.begin);
  });
  // Rows may hold fewer than a group, so there are at most twice as many groups.
  const int64_t group = CeilDiv(before, std::max<int64_t>(most / 2, 1));
  const auto merge = [](TimelineMove& kept, const TimelineMove& next) {
    if (kept.lane != next.lane || kept.row != next.row) return false;
    kept.end = std::max(kept.end, next.end);
    kept.bytes += next.bytes;
    kept.count += next.count;
    kept.subject = -1;
    if (kept.serves != next.serves) kept.serves = -1;
    return true;
  };
  MergeNeighbours(timeline.moves, group, merge);
  if (std::ssize(timeline.moves) > most) {
    // Hardly any row has more than one: the rows are what is too much.
    for (TimelineMove& move : timeline.moves) move.row = 0;
    std::ranges::stable_sort(timeline.moves, {}, [](const TimelineMove& move) {
      return std::tuple(move.lane, move.begin);
    });
    MergeNeighbours(timeline.moves,
                    CeilDiv(before, std::max<int64_t>(most - kSimulatedLaneCount, 1)), merge);
  }
  timeline.notes.push_back(
      StrCat(before, " moves are drawn as ", timeline.moves.size(), ": neighbours are merged"));
  std::ranges::stable_sort(timeline.moves, {}, &TimelineMove::begin);
}

void LimitWaits(int64_t most, StepTimeline& timeline) {
  const auto before = std::ssize(timeline.waits);
  if (before <= most) return;
  // The longest stay.
  std::ranges::stable_sort(timeline.waits, std::ranges::greater(),
                           [](const TimelineWait& wait) { return wait.end - wait.begin; });
  timeline.waits.resize(static_cast<size_t>(most));
  std::ranges::stable_sort(timeline.waits, {}, &TimelineWait::begin);
  timeline.notes.push_back(StrCat("of ", before, " waits the ", most, " longest are drawn"));
}

int64_t Sum(const KindSlots& slots) {
  return std::accumulate(slots.begin(), slots.end(), int64_t{0});
}

void LimitPoints(int64_t most, StepTimeline& timeline) {
  for (TierCurve& tier : timeline.tiers) {
    const auto before = std::ssize(tier.points);
    if (before <= most) continue;
    MergeNeighbours(tier.points, CeilDiv(before, std::max<int64_t>(most, 1)),
                    [](TierPoint& kept, const TierPoint& next) {
                      if (Sum(next.slots) > Sum(kept.slots)) kept.slots = next.slots;
                      return true;
                    });
    timeline.notes.push_back(StrCat(tier.name, ": of ", before, " levels the ", tier.points.size(),
                                    " that are the fullest in turn are drawn"));
  }
}

}  // namespace

std::string_view Name(ByteKind kind) {
  switch (kind) {
    case ByteKind::kParameters:
      return "parameters";
    case ByteKind::kGradients:
      return "gradients";
    case ByteKind::kStates:
      return "optimizer states";
    case ByteKind::kActivations:
      return "activations";
    case ByteKind::kBuffers:
      return "buffers";
  }
  return "?";
}

SimulatedLane ShownLane(const Machine& machine, SimulatedLane lane) {
  if (!machine.unified) return lane;
  if (lane == SimulatedLane::kHostToDevice) return SimulatedLane::kFileRead;
  if (lane == SimulatedLane::kDeviceToHost) return SimulatedLane::kFileWrite;
  return lane;
}

std::string_view Text(MoveReason reason) {
  switch (reason) {
    case MoveReason::kUse:
      return "fetched for its use";
    case MoveReason::kUpdate:
      return "for the update of its chunk";
    case MoveReason::kRoom:
      return "leaves its room to others until it is used again";
    case MoveReason::kStates:
      return "read for the update of its chunk";
    case MoveReason::kSave:
      return "written to its file";
    case MoveReason::kDemand:
      return "an operator waits for it";
    case MoveReason::kPrefetch:
      return "fetched ahead";
  }
  return "?";
}

Bytes PeakOf(const TierCurve& tier, Bytes slot_bytes) {
  int64_t most = 0;
  for (const TierPoint& point : tier.points) {
    most = std::max(most, Sum(point.slots));
  }
  return slot_bytes * most;
}

void ArrangeMoves(StepTimeline& timeline) {
  std::ranges::stable_sort(timeline.moves, {}, [](const TimelineMove& move) {
    return std::tuple(move.begin, move.lane, move.end);
  });
  std::array<std::vector<Nanoseconds>, kSimulatedLaneCount> free;  // by row: from when on
  for (TimelineMove& move : timeline.moves) {
    std::vector<Nanoseconds>& rows = free[static_cast<size_t>(move.lane)];
    size_t row = 0;
    while (row < rows.size() && rows[row] > move.begin) ++row;
    if (row == rows.size()) rows.push_back(0);
    rows[row] = std::max(move.end, move.begin);
    move.row = static_cast<int32_t>(row);
  }
}

void LimitTimeline(const TimelineLimits& limits, StepTimeline& timeline) {
  LimitOperators(limits.operators, timeline);
  LimitMoves(limits.moves, timeline);
  LimitWaits(limits.waits, timeline);
  LimitPoints(limits.points, timeline);
}

}  // namespace gantry
