#include "placement_policy/keep_set.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "placement_policy/slot_profile.h"

namespace gantry {
namespace {

// The sweep runs this many steps; the choices for gaps that begin in the third count. By then the
// choices repeat, and the fourth decides what of the third is still open.
constexpr int64_t kPeriods = 4;
constexpr int64_t kDecisivePeriod = 2;

// Gaps under way by the moment at which they end, each at most a step ahead: a list per moment of
// the step, and a bit for each list that is not empty.
class EndRing {
 public:
  EndRing(size_t moments, size_t uses)
      : head_(moments, -1), next_(uses, -1), words_((moments + 63) / 64, 0) {}

  void Add(int64_t moment, int32_t use) {
    int32_t& head = head_[static_cast<size_t>(moment)];
    next_[static_cast<size_t>(use)] = head;
    head = use;
    words_[static_cast<size_t>(moment) / 64] |= uint64_t{1} << (moment % 64);
  }
  // Those that end at `moment`: the first, and what follows one.
  int32_t First(int64_t moment) const { return head_[static_cast<size_t>(moment)]; }
  int32_t After(int32_t use) const { return next_[static_cast<size_t>(use)]; }
  void Clear(int64_t moment) {
    head_[static_cast<size_t>(moment)] = -1;
    words_[static_cast<size_t>(moment) / 64] &= ~(uint64_t{1} << (moment % 64));
  }

  // Takes out the one that ends last, seen from `now`: of several the largest; -1 when empty.
  int32_t TakeFurthest(int64_t now) {
    // What ends at the same moment of the next step is furthest, then what lies before it.
    int64_t moment = LastUpTo(now);
    if (moment < 0) moment = LastUpTo(static_cast<int64_t>(head_.size()) - 1);
    if (moment < 0) return -1;
    int32_t* best = &head_[static_cast<size_t>(moment)];
    for (int32_t* at = best; *at >= 0; at = &next_[static_cast<size_t>(*at)]) {
      if (*at > *best) best = at;
    }
    const int32_t use = *best;
    *best = next_[static_cast<size_t>(use)];
    if (head_[static_cast<size_t>(moment)] < 0) Clear(moment);
    return use;
  }

 private:
  // The last moment up to this one that has any; -1: none.
  int64_t LastUpTo(int64_t moment) const {
    auto word = static_cast<size_t>(moment) / 64;
    uint64_t bits = words_[word] & (~uint64_t{0} >> (63 - moment % 64));
    while (bits == 0 && word > 0) bits = words_[--word];
    return bits == 0 ? -1 : static_cast<int64_t>(word) * 64 + 63 - std::countl_zero(bits);
  }

  std::vector<int32_t> head_;    // by moment
  std::vector<int32_t> next_;    // by use
  std::vector<uint64_t> words_;  // a bit per moment
};

class Sweep {
 public:
  Sweep(const MovementProblem& problem, const UseCycle& cycle, const KeepSetOptions& options)
      : problem_(problem),
        cycle_(cycle),
        options_(options),
        count_(static_cast<int64_t>(problem.moments.size())),
        keep_(problem.uses.size(), false),
        floating_(problem.moments.size(), problem.uses.size()),
        pinned_(problem.moments.size(), problem.uses.size()) {
    FindRoom();
  }

  std::vector<bool> Run() {
    for (int64_t period = 0; period < kPeriods; ++period) {
      for (int64_t now = 0; now < count_; ++now) {
        EndGaps(now, floating_);
        EndGaps(now, pinned_);
        while (kept_slots_ > room_[static_cast<size_t>(now)]) GiveUpFurthest(period, now);
        BeginGaps(period, now);
      }
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
      if (link(use).gap == Gap::kStays) end = link(use).moment + link(use).distance;
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

  void EndGaps(int64_t now, EndRing& ring) {
    for (int32_t use = ring.First(now); use >= 0; use = ring.After(use)) {
      kept_slots_ -= SlotsOf(use);
    }
    ring.Clear(now);
  }

  void BeginGaps(int64_t period, int64_t now) {
    const MovementProblem::Moment& moment = problem_.moments[static_cast<size_t>(now)];
    for (int64_t i = 0; i < moment.use_count; ++i) {
      const auto use = static_cast<int32_t>(moment.first_use + i);
      if (link(use).gap != Gap::kSame) continue;
      if (period == kDecisivePeriod) keep_[static_cast<size_t>(use)] = true;
      kept_slots_ += SlotsOf(use);
      (Pinned(use) ? pinned_ : floating_).Add((now + link(use).distance) % count_, use);
    }
  }

  void GiveUpFurthest(int64_t period, int64_t now) {
    int32_t use = floating_.TakeFurthest(now);
    if (use < 0) use = pinned_.TakeFurthest(now);
    // A gap of the decisive period may be given up in the next one.
    const int64_t begun = link(use).moment < now ? period : period - 1;
    if (begun == kDecisivePeriod) keep_[static_cast<size_t>(use)] = false;
    kept_slots_ -= SlotsOf(use);
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
    std::vector<int64_t> slack(kept.size());
    for (size_t t = 0; t < kept.size(); ++t) slack[t] = room_[t] - kept[t];
    SlotProfile profile(slack);
    for (const int32_t use : by_distance) {
      const int64_t begin = link(use).moment + 1;
      const int64_t end = link(use).moment + link(use).distance;
      if (begin >= end || profile.Min(begin, end) >= 0) continue;
      keep_[static_cast<size_t>(use)] = false;
      profile.Add(begin, end, SlotsOf(use));
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
  // Gaps under way that are kept. Floating ones go first.
  EndRing floating_;
  EndRing pinned_;
  int64_t kept_slots_ = 0;
};

}  // namespace

std::vector<bool> ChooseKeepSet(const MovementProblem& problem, const UseCycle& cycle,
                                const KeepSetOptions& options) {
  return Sweep(problem, cycle, options).Run();
}

}  // namespace gantry
