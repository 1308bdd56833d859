#include "placement_policy/held_level.h"

#include <algorithm>
#include <utility>

namespace gantry {

HeldLevel::HeldLevel(std::span<const Hold> holds) {
  std::vector<std::pair<Nanoseconds, int64_t>> changes;
  for (const Hold& hold : holds) {
    if (hold.end <= hold.begin) continue;
    changes.emplace_back(hold.begin, hold.amount);
    changes.emplace_back(hold.end, -hold.amount);
  }
  std::ranges::sort(changes);
  int64_t sum = 0;
  for (size_t i = 0; i < changes.size(); ++i) {
    sum += changes[i].second;
    if (i + 1 < changes.size() && changes[i + 1].first == changes[i].first) continue;
    times_.push_back(changes[i].first);
    sums_.push_back(sum);
  }
}

int64_t HeldLevel::Most(const TimeSpan& span) const {
  const auto first = std::ranges::upper_bound(times_, span.begin) - times_.begin();
  int64_t most = first == 0 ? 0 : sums_[static_cast<size_t>(first) - 1];
  for (auto i = static_cast<size_t>(first); i < times_.size() && times_[i] < span.end; ++i) {
    most = std::max(most, sums_[i]);
  }
  return most;
}

}  // namespace gantry
