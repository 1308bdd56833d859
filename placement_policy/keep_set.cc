#include "placement_policy/keep_set.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

namespace gantry {
namespace {

// The sweep runs this many steps; the choices for gaps that begin in the third count. By then the
// choices repeat, and the fourth decides what of the third is still open.
constexpr int64_t kPeriods = 4;
constexpr int64_t kDecisivePeriod = 2;

class Sweep {
 public:
  Sweep(const MovementProblem& problem, const UseCycle& cycle, const KeepSetOptions& options)
      : problem_(problem),
        cycle_(cycle),
        options_(options),
        count_(static_cast<int64_t>(problem.moments.size())),
        keep_(problem.uses.size(), false),
        ends_(problem.moments.size()) {
    FindRoom();
  }

  std::vector<bool> Run() {
    for (int64_t now = 0; now < kPeriods * count_; ++now) {
      EndGaps(now);
      while (kept_slots_ > room_[static_cast<size_t>(now % count_)]) GiveUpFurthest();
      BeginGaps(now);
    }
    Trim();
    return std::move(keep_);
  }

 private:
  int64_t SlotsOf(int32_t use) const {
    return problem_.block_slots[static_cast<size_t>(problem_.uses[static_cast<size_t>(use)].block)];
  }
  bool Pinned(int32_t use) const {
    const auto block = static_cast<size_t>(problem_.uses[static_cast<size_t>(use)].block);
    return !options_.pinned.empty() && options_.pinned[block];
  }
  const UseCycle::Link& link(int32_t use) const { return cycle_.links[static_cast<size_t>(use)]; }

  // Slots that kept blocks may have at each moment: beside the blocks it uses, gradients between
  // their last use and completion, and the reserve.
  void FindRoom() {
    std::vector<int64_t> change(static_cast<size_t>(2 * count_ + 1), 0);
    for (int32_t use = 0; use < static_cast<int32_t>(problem_.uses.size()); ++use) {
      const auto block = static_cast<size_t>(problem_.uses[static_cast<size_t>(use)].block);
      const int32_t u = cycle_.update_of[block];
      int64_t end = link(use).moment + 1;
      if (u >= 0 && link(use).gap == Gap::kNone) {
        end = problem_.updates[static_cast<size_t>(u)].complete + 1;
      }
      change[static_cast<size_t>(link(use).moment)] += SlotsOf(use);
      change[static_cast<size_t>(end)] -= SlotsOf(use);
    }
    room_.assign(static_cast<size_t>(count_), 0);
    int64_t held = 0;
    for (int64_t t = 0; t < 2 * count_; ++t) {
      held += change[static_cast<size_t>(t)];
      room_[static_cast<size_t>(t % count_)] -= held;
    }
    for (int64_t t = 0; t < count_; ++t) {
      int64_t& room = room_[static_cast<size_t>(t)];
      room += problem_.moments[static_cast<size_t>(t)].capacity - options_.reserve;
      room = std::max<int64_t>(room, 0);
    }
  }

  void EndGaps(int64_t now) {
    std::vector<int32_t>& ending = ends_[static_cast<size_t>(now % count_)];
    for (const int32_t use : ending) {
      if (kept_.erase({!Pinned(use), now, use}) > 0) kept_slots_ -= SlotsOf(use);
    }
    ending.clear();
  }

  void BeginGaps(int64_t now) {
    const MovementProblem::Moment& moment = problem_.moments[static_cast<size_t>(now % count_)];
    for (int64_t i = 0; i < moment.use_count; ++i) {
      const auto use = static_cast<int32_t>(moment.first_use + i);
      if (link(use).gap != Gap::kSame) continue;
      const int64_t end = now + link(use).distance;
      if (now / count_ == kDecisivePeriod) keep_[static_cast<size_t>(use)] = true;
      kept_.insert({!Pinned(use), end, use});
      kept_slots_ += SlotsOf(use);
      ends_[static_cast<size_t>(end % count_)].push_back(use);
    }
  }

  void GiveUpFurthest() {
    const auto furthest = std::prev(kept_.end());
    const auto [floating, end, use] = *furthest;
    if ((end - link(use).distance) / count_ == kDecisivePeriod) {
      keep_[static_cast<size_t>(use)] = false;
    }
    kept_slots_ -= SlotsOf(use);
    kept_.erase(furthest);
  }

  // If the choices did not repeat, those of one period may not fit beside themselves.
  void Trim() {
    std::vector<int64_t> kept = KeptSlots();
    if (Fits(kept)) return;
    std::vector<int32_t> by_distance;
    for (int32_t use = 0; use < static_cast<int32_t>(keep_.size()); ++use) {
      if (keep_[static_cast<size_t>(use)]) by_distance.push_back(use);
    }
    std::ranges::sort(by_distance, [this](int32_t a, int32_t b) {
      return std::tuple(Pinned(a), -link(a).distance, a) <
             std::tuple(Pinned(b), -link(b).distance, b);
    });
    for (const int32_t use : by_distance) {
      bool over = false;
      for (int64_t d = 1; d < link(use).distance; ++d) {
        const auto t = static_cast<size_t>((link(use).moment + d) % count_);
        over = over || kept[t] > room_[t];
      }
      if (!over) continue;
      keep_[static_cast<size_t>(use)] = false;
      for (int64_t d = 1; d < link(use).distance; ++d) {
        kept[static_cast<size_t>((link(use).moment + d) % count_)] -= SlotsOf(use);
      }
    }
  }

  // By moment.
  std::vector<int64_t> KeptSlots() const {
    std::vector<int64_t> change(static_cast<size_t>(2 * count_ + 1), 0);
    for (int32_t use = 0; use < static_cast<int32_t>(keep_.size()); ++use) {
      if (!keep_[static_cast<size_t>(use)]) continue;
      change[static_cast<size_t>(link(use).moment + 1)] += SlotsOf(use);
      change[static_cast<size_t>(link(use).moment + link(use).distance)] -= SlotsOf(use);
    }
    std::vector<int64_t> kept(static_cast<size_t>(count_), 0);
    int64_t held = 0;
    for (int64_t t = 0; t < 2 * count_; ++t) {
      held += change[static_cast<size_t>(t)];
      kept[static_cast<size_t>(t % count_)] += held;
    }
    return kept;
  }

  bool Fits(const std::vector<int64_t>& kept) const {
    for (size_t t = 0; t < kept.size(); ++t) {
      if (kept[t] > room_[t]) return false;
    }
    return true;
  }

  const MovementProblem& problem_;
  const UseCycle& cycle_;
  const KeepSetOptions& options_;
  const int64_t count_;
  std::vector<int64_t> room_;  // by moment
  std::vector<bool> keep_;     // by use
  // Gaps under way that are kept: (not pinned, end, use). The last one goes first.
  std::set<std::tuple<bool, int64_t, int32_t>> kept_;
  int64_t kept_slots_ = 0;
  std::vector<std::vector<int32_t>> ends_;  // moment -> gaps that end there
};

}  // namespace

std::vector<bool> ChooseKeepSet(const MovementProblem& problem, const UseCycle& cycle,
                                const KeepSetOptions& options) {
  return Sweep(problem, cycle, options).Run();
}

}  // namespace gantry
