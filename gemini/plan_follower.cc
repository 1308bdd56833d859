#include "gemini/plan_follower.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/planned_slack.h"

namespace gantry {

PlanFollower::PlanFollower(const Trace& trace, const MovementDecision& decision,
                           int64_t lease_moments, std::span<const BlockIndex> activations)
    : after_update_(trace.chunks.size(), true),
      states_stay_(trace.chunks.size(), false),
      write_reserve_(decision.movement.write_reserve) {
  const TrainingProblem& training = decision.training;
  const MovementProblem& problem = training.problem;
  const std::vector<bool>& keep = decision.movement.keep;
  GANTRY_CHECK_EQ(keep.size(), problem.uses.size()) << "only keep sets can be followed";
  const UseCycle cycle = LinkUses(problem);

  // By block of the problem: those of the engine, one after the other.
  struct Blocks {
    BlockIndex first = -1;
    int32_t count = 1;
    int32_t slots = 1;  // of each
  };
  std::vector<Blocks> blocks_of(problem.block_slots.size());
  for (size_t c = 0; c < trace.chunks.size(); ++c) {
    for (const auto& [block, own] : {std::pair(training.parameter[c], trace.chunks[c].parameter),
                                     std::pair(training.gradient[c], trace.chunks[c].gradient)}) {
      if (block < 0) continue;
      blocks_of[static_cast<size_t>(block)] = {
          .first = own, .slots = trace.block_slots[static_cast<size_t>(own)]};
    }
  }
  for (size_t a = 0; a < activations.size(); ++a) {
    BlockIndex first = activations[a];
    for (const int32_t block : training.activations[a]) {
      const int32_t slots = problem.block_slots[static_cast<size_t>(block)];
      blocks_of[static_cast<size_t>(block)] = {.first = first, .count = slots};
      first += slots;
    }
  }
  // What dies after its use is used up or made anew by the update, which says when it goes.
  const auto stays = [&](size_t use) { return cycle.links[use].gap != Gap::kSame || keep[use]; };
  // Whether the use before this one let the block go, so that it must come for this one.
  std::vector<bool> fetched(problem.uses.size(), false);
  for (size_t use = 0; use < problem.uses.size(); ++use) {
    const UseCycle::Link& link = cycle.links[use];
    const bool leaves = link.gap == Gap::kNew || (link.gap == Gap::kSame && !keep[use]);
    if (leaves) fetched[static_cast<size_t>(link.next)] = true;
  }
  const std::vector<int64_t> slack = PlannedSlack(problem, cycle, keep);
  for (int64_t m = 0; m < lease_moments; ++m) {
    first_use_.push_back(static_cast<int64_t>(uses_.size()));
    const auto at = static_cast<size_t>(training.moment[static_cast<size_t>(m)]);
    const MovementProblem::Moment& moment = problem.moments[at];
    for (int64_t i = moment.first_use; i < moment.first_use + moment.use_count; ++i) {
      const auto use = static_cast<size_t>(i);
      const Blocks& blocks = blocks_of[static_cast<size_t>(problem.uses[use].block)];
      for (int64_t b = 0; b < blocks.count; ++b) {
        uses_.push_back({.block = static_cast<BlockIndex>(blocks.first + b),
                         .slots = blocks.slots,
                         .since = 0,
                         .stays = stays(use),
                         .held = cycle.links[use].gap == Gap::kSame && keep[use],
                         .fetched = fetched[use]});
      }
    }
    // Updates on the device come between leases; the room that they need is missing there.
    int64_t least = slack[at];
    for (size_t next = at + 1; next < problem.moments.size() && problem.moments[next].source < 0;
         ++next) {
      least = std::min(least, slack[next]);
    }
    slack_.push_back(least);
  }
  first_use_.push_back(static_cast<int64_t>(uses_.size()));
  size_t blocks = trace.block_slots.size();
  for (const Use& use : uses_) blocks = std::max(blocks, static_cast<size_t>(use.block) + 1);
  NotePositions(blocks);

  for (size_t c = 0; c < trace.chunks.size(); ++c) {
    if (training.update_moment[c] < 0) continue;
    const auto& moment = problem.moments[static_cast<size_t>(training.update_moment[c])];
    for (int64_t i = moment.first_use; i < moment.first_use + moment.use_count; ++i) {
      const auto use = static_cast<size_t>(i);
      if (problem.uses[use].block == training.parameter[c]) {
        after_update_[c] = stays(use);
        held_at_start_[static_cast<size_t>(trace.chunks[c].parameter)] = stays(use);
      }
      if (problem.uses[use].block == training.states[c]) states_stay_[c] = stays(use);
    }
  }
}

// What follows from the order of the uses of each block.
void PlanFollower::NotePositions(size_t blocks) {
  holds_.resize(blocks);
  held_at_start_.assign(blocks, false);
  for (int64_t m = 0; m < lease_moments(); ++m) {
    for (int64_t i = first_use_[static_cast<size_t>(m)]; i < first_use_[static_cast<size_t>(m) + 1];
         ++i) {
      const Use& use = uses_[static_cast<size_t>(i)];
      holds_[static_cast<size_t>(use.block)].push_back({.moment = m, .held = use.held});
    }
  }
  for (int64_t m = 0; m < lease_moments(); ++m) {
    for (int64_t i = first_use_[static_cast<size_t>(m)]; i < first_use_[static_cast<size_t>(m) + 1];
         ++i) {
      Use& use = uses_[static_cast<size_t>(i)];
      const std::vector<Hold>& holds = holds_[static_cast<size_t>(use.block)];
      const auto at = std::ranges::lower_bound(holds, m, {}, &Hold::moment);
      const int64_t before =
          at == holds.begin() ? holds.back().moment - lease_moments() : (at - 1)->moment;
      use.since = static_cast<int32_t>(m - before);
    }
  }
  for (size_t b = 0; b < blocks; ++b) {
    if (!holds_[b].empty()) held_at_start_[b] = holds_[b].back().held;
  }
}

bool PlanFollower::Holds(int64_t cursor, BlockIndex block) const {
  const std::vector<Hold>& holds = holds_[static_cast<size_t>(block)];
  const auto at = std::ranges::lower_bound(holds, cursor, {}, &Hold::moment);
  return at == holds.begin() ? held_at_start_[static_cast<size_t>(block)] : (at - 1)->held;
}

std::vector<bool> PlanFollower::ThereAtStart() const {
  std::vector<bool> there = held_at_start_;
  if (lease_moments() == 0) return there;
  // As in Ahead, were nothing there that is fetched.
  int64_t taken = 0;
  int64_t room = slack_.back();
  for (int64_t m = 0; m < lease_moments() && room > taken; ++m) {
    for (int64_t i = first_use_[static_cast<size_t>(m)]; i < first_use_[static_cast<size_t>(m) + 1];
         ++i) {
      const Use& use = uses_[static_cast<size_t>(i)];
      if (!use.fetched) continue;
      taken += use.slots;
      if (m > 0 && taken > room) return there;
      there[static_cast<size_t>(use.block)] = true;
    }
    room = std::min(room, slack_[static_cast<size_t>(m)] + taken);
  }
  return there;
}

bool PlanFollower::Stays(int64_t moment, BlockIndex block) const {
  const auto m = static_cast<size_t>(moment);
  for (int64_t i = first_use_[m]; i < first_use_[m + 1]; ++i) {
    const Use& use = uses_[static_cast<size_t>(i)];
    if (use.block == block) return use.stays;
  }
  return true;
}

// In flight at a moment is what is fetched for later ones. With F the slots of all fetches looked
// at so far, and P(m) those of them whose use is at or before m, a further one fits when at every
// moment m until its use  F - P(m) + its slots <= slack(m),  that is, when F + its slots is at most
// the least slack(m) + P(m).
void PlanFollower::Ahead(int64_t cursor, const std::function<Presence(BlockIndex)>& presence,
                         std::vector<Fetch>& out) const {
  out.clear();
  const int64_t count = lease_moments();
  if (count == 0) return;
  int64_t taken = 0;  // F
  int64_t room = slack_[static_cast<size_t>((cursor + count - 1) % count)];
  for (int64_t distance = 0; distance < count; ++distance) {
    const auto m = static_cast<size_t>((cursor + distance) % count);
    for (int64_t i = first_use_[m]; i < first_use_[m + 1]; ++i) {
      const Use& use = uses_[static_cast<size_t>(i)];
      if (!use.fetched) {
        // Kept from a use that is past, so its slot is its own. Not there: it was pushed out.
        if (use.since > distance && presence(use.block) == Presence::kAbsent) {
          out.push_back({.block = use.block, .distance = distance});
          if (out.size() == kAheadMax) return;
        }
        continue;
      }
      const Presence there = presence(use.block);
      if (there == Presence::kNotYet) continue;
      const int64_t slots = use.slots;
      if (there == Presence::kAbsent) {
        // The next moment's own blocks have their room in any case.
        if (distance > 0 && taken + slots > room) return;
        out.push_back({.block = use.block, .distance = distance});
        if (out.size() == kAheadMax) return;
      }
      taken += slots;
    }
    room = std::min(room, slack_[m] + taken);
    if (room <= taken) return;  // nothing more fits, however late its use
  }
}

}  // namespace gantry
