#include "placement_policy/planned_slack.h"

namespace gantry {

std::vector<int64_t> PlannedSlack(const MovementProblem& problem, const UseCycle& cycle,
                                  const std::vector<bool>& keep) {
  const auto count = static_cast<int64_t>(problem.moments.size());
  // Over two periods, as what is held may reach into the next.
  std::vector<int64_t> change(static_cast<size_t>(2 * count + 1), 0);
  for (size_t use = 0; use < problem.uses.size(); ++use) {
    const UseCycle::Link& link = cycle.links[use];
    const int32_t block = problem.uses[use].block;
    const int32_t u = cycle.update_of[static_cast<size_t>(block)];
    const bool gradient = u >= 0 && problem.updates[static_cast<size_t>(u)].gradient == block;
    int64_t end = link.moment + 1;
    if (gradient && link.gap == Gap::kNone) {
      end = problem.updates[static_cast<size_t>(u)].complete + 1;
    } else if (link.gap == Gap::kStays || (link.gap == Gap::kSame && keep[use])) {
      end = link.moment + link.distance;
    }
    const int64_t slots = problem.block_slots[static_cast<size_t>(block)];
    change[static_cast<size_t>(link.moment)] += slots;
    change[static_cast<size_t>(end)] -= slots;
  }
  std::vector<int64_t> slack(static_cast<size_t>(count), 0);
  int64_t held = 0;
  for (int64_t t = 0; t < 2 * count; ++t) {
    held += change[static_cast<size_t>(t)];
    slack[static_cast<size_t>(t % count)] -= held;
  }
  for (int64_t t = 0; t < count; ++t) {
    slack[static_cast<size_t>(t)] += problem.moments[static_cast<size_t>(t)].capacity;
  }
  return slack;
}

}  // namespace gantry
