#include "placement_policy/path_bound.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "placement_policy/free_border.h"
#include "placement_policy/interval_sweep.h"
#include "placement_policy/release_shop.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

// Release windows begin at no more moments than this, spread evenly, so that the work stays
// proportional to the updates.
constexpr size_t kReleaseBeginsMax = 256;

__extension__ using Wide = __int128;

bool Changes(BlockAccess access) {
  return access == BlockAccess::kWrite || access == BlockAccess::kCreate;
}

}  // namespace

// The state of one pass over a period that begins at moment `anchor`. Positions count from it.
struct PathBound::Cut {
  // Gradients on the lane down, and what the norm waits for, of one step.
  struct Norm {
    bool is_known = false;
    Nanoseconds down = -kNever;  // when the lane has carried the gradients so far
    int64_t position = 0;        // of the moment that decides
    Nanoseconds moment = -kNever;
    int64_t moment_position = 0;

    Nanoseconds time() const { return std::max(down, moment); }
    int64_t from() const { return down >= moment ? position : moment_position; }
  };

  int64_t anchor = 0;
  int64_t border = 0;                  // position at which the next step begins
  std::vector<Nanoseconds> start;      // by position: the longest path to it
  std::vector<Parent> parents;         // by position
  std::vector<const Window*> windows;  // whose start has been passed
  std::vector<int64_t> window_positions;
  std::vector<int64_t> produced;  // by position: slots of gradients complete since the anchor
  Wide gradient = -static_cast<Wide>(kNever) * kNever;  // the best start of a gradient window
  int64_t gradient_position = 0;
  Norm norm;                       // of the step at hand
  Norm last_norm;                  // of the one before
  std::vector<ReleaseShop> shops;  // by where a release window begins, ascending
  ReleaseShop norm_shop;           // after the last norm

  // Windows across the border, wherever updates run.
  struct Border {
    int64_t position = 0;
    Nanoseconds begin = 0;
    int64_t count = 0;  // chunks
  };
  std::vector<Border> borders;
  std::vector<Nanoseconds> computed;  // by position: of all moments before

  void Offer(int64_t position, Nanoseconds time, Parent parent) {
    const auto p = static_cast<size_t>(position);
    if (time <= start[p]) return;
    start[p] = time;
    parents[p] = parent;
  }
};

PathBound::PathBound(const MovementProblem& problem, const UseCycle& cycle)
    : problem_(problem),
      cycle_(cycle),
      count_(static_cast<int64_t>(problem.moments.size())),
      room_(RoomBeside(problem, BaseSlots(problem, cycle))),
      completes_(problem.moments.size()),
      first_used_(problem.moments.size()),
      complete_slots_(problem.moments.size(), 0) {
  for (size_t use = 0; use < problem.uses.size(); ++use) {
    const Gap gap = cycle.links[use].gap;
    const BlockUse& what = problem.uses[use];
    const int32_t slots = problem.block_slots[static_cast<size_t>(what.block)];
    const int64_t bytes = problem.block_bytes(what.block);
    if (gap == Gap::kSame || gap == Gap::kNew) {
      up_.Include(LaneTime(problem.host_to_device, bytes), slots);
    }
    if (Changes(what.access)) down_.Include(LaneTime(problem.device_to_host, bytes), slots);
  }
  int64_t last = problem.norm_moment;
  for (size_t u = 0; u < problem.updates.size(); ++u) {
    const MovementProblem::HostUpdate& update = problem.updates[u];
    last = std::max<int64_t>(last, update.complete);
    const int32_t slots = problem.block_slots[static_cast<size_t>(update.gradient)];
    gradient_down_.Include(LaneTime(problem.device_to_host, problem.block_bytes(update.gradient)),
                           slots);
    completes_[static_cast<size_t>(update.complete)].push_back(static_cast<int32_t>(u));
    complete_slots_[static_cast<size_t>(update.complete)] += slots;
    const int32_t first = cycle.first_use[static_cast<size_t>(update.parameter)];
    if (first < 0) continue;
    first_used_[static_cast<size_t>(cycle.links[static_cast<size_t>(first)].moment)].push_back(
        static_cast<int32_t>(u));
  }
  for (const MovementProblem::HostUpdate& update : problem.updates) {
    release_.push_back(problem.wait_for_norm ? last : update.complete);
  }
}

PathBound::PathBound(const MovementProblem& problem, const UseCycle& cycle,
                     const FreeBorder& border)
    : PathBound(problem, cycle) {
  GANTRY_CHECK(problem.updates.empty());
  border_ = &border;
  border_completes_.resize(problem.moments.size());
  border_first_used_.resize(problem.moments.size());
  for (size_t c = 0; c < border.chunks.size(); ++c) {
    const auto index = static_cast<int32_t>(c);
    border_completes_[static_cast<size_t>(border.chunks[c].complete)].push_back(index);
    border_first_used_[static_cast<size_t>(border.chunks[c].first_use)].push_back(index);
  }
}

std::vector<int64_t> PathBound::Anchors(const LowerBoundOptions& options) const {
  std::vector<int64_t> anchors = {0};
  int64_t first_gradient = count_;
  int64_t last_complete = 0;
  for (const MovementProblem::HostUpdate& update : problem_.updates) {
    const int32_t use = cycle_.first_use[static_cast<size_t>(update.gradient)];
    first_gradient =
        std::min<int64_t>(first_gradient, cycle_.links[static_cast<size_t>(use)].moment);
    last_complete = std::max<int64_t>(last_complete, update.complete);
  }
  if (!problem_.updates.empty()) {
    anchors.push_back(first_gradient);
    anchors.push_back((last_complete + 1) % count_);
  }
  for (const int32_t anchor : options.anchors) {
    GANTRY_CHECK(anchor >= 0 && anchor < count_) << "anchor " << anchor << " of " << count_;
    anchors.push_back(anchor);
  }
  std::ranges::sort(anchors);
  anchors.erase(std::ranges::unique(anchors).begin(), anchors.end());
  return anchors;
}

// From what the device may hold when moment `start` has computed: its own blocks, and others in the
// room beside them.
std::vector<Nanoseconds> PathBound::FetchesFrom(int64_t start) const {
  UnitsByEnd kept(count_);
  std::vector<int64_t> dropped(static_cast<size_t>(count_) + 1, 0);   // by end after the start
  std::vector<Nanoseconds> made(static_cast<size_t>(count_) + 1, 0);  // times of new versions
  const auto slots = [this](size_t use) {
    return int64_t{problem_.block_slots[static_cast<size_t>(problem_.uses[use].block)]};
  };
  const auto up = [this](size_t use) {
    return LaneTime(problem_.host_to_device, problem_.block_bytes(problem_.uses[use].block));
  };
  for (size_t use = 0; use < problem_.uses.size(); ++use) {
    const UseCycle::Link& link = cycle_.links[use];
    if (link.gap != Gap::kSame && link.gap != Gap::kNew) continue;
    const int64_t passed = link.moment < start ? start - link.moment : start - link.moment + count_;
    if (passed >= link.distance) continue;
    const int64_t end = link.distance - passed;
    const auto u =
        static_cast<size_t>(cycle_.update_of[static_cast<size_t>(problem_.uses[use].block)]);
    if (link.gap == Gap::kNew && link.moment < start && release_[u] >= start) {
      made[static_cast<size_t>(end)] += up(use);
    } else {
      kept.Add(start + end, slots(use));
    }
  }
  std::vector<Nanoseconds> times = {0};
  int64_t units = 0;
  Nanoseconds forced = 0;
  for (int64_t d = 0;; ++d) {
    if (d > 0) {
      kept.Take(start + d);
      units += dropped[static_cast<size_t>(d)];
      forced += made[static_cast<size_t>(d)];
      times.push_back(forced + up_.Of(units));
    }
    if (d == count_) return times;
    const MovementProblem::Moment& moment = problem_.moments[moment_index(start + d)];
    const int64_t room = room_[moment_index(start + d)];
    while (kept.size() > room) {
      const UnitsByEnd::Units gone = kept.DropFurthest(start + d, kept.size() - room);
      int64_t end = (gone.end - (start + d) % count_ + count_) % count_;
      if (end == 0) end = count_;
      if (d + end <= count_) dropped[static_cast<size_t>(d + end)] += gone.count;
    }
    for (int64_t i = moment.first_use; i < moment.first_use + moment.use_count; ++i) {
      const auto use = static_cast<size_t>(i);
      const UseCycle::Link& link = cycle_.links[use];
      if (link.gap == Gap::kSame) kept.Add(start + d + link.distance, slots(use));
      if (link.gap == Gap::kNew && d + link.distance <= count_) {
        made[static_cast<size_t>(d + link.distance)] += up(use);
      }
    }
  }
}

// Of the blocks changed since then whose content still counts, those that the next moment's room
// does not hold have gone down. Gradients go down once complete; before, some hold their slots.
std::vector<Nanoseconds> PathBound::WritesFrom(int64_t start) const {
  std::vector<bool> changed(problem_.block_slots.size(), false);
  std::vector<Nanoseconds> times = {0};
  int64_t slots = 0;
  const auto set = [&](int32_t block, bool value) {
    const auto b = static_cast<size_t>(block);
    if (changed[b] != value) slots += (value ? 1 : -1) * problem_.block_slots[b];
    changed[b] = value;
  };
  for (int64_t d = 1; d <= count_; ++d) {
    const size_t ended = moment_index(start + d - 1);
    const MovementProblem::Moment& moment = problem_.moments[ended];
    for (int64_t i = moment.first_use; i < moment.first_use + moment.use_count; ++i) {
      const BlockUse& use = problem_.uses[static_cast<size_t>(i)];
      const Gap gap = cycle_.links[static_cast<size_t>(i)].gap;
      if (Changes(use.access)) set(use.block, true);
      if (gap == Gap::kNone || gap == Gap::kStays) set(use.block, false);
    }
    for (const int32_t u : completes_[ended]) {
      set(problem_.updates[static_cast<size_t>(u)].gradient, true);
    }
    int64_t beside = slots;  // the blocks that the next moment uses
    const size_t next = moment_index(start + d);
    for (const BlockUse& use : problem_.uses_of(problem_.moments[next])) {
      const auto b = static_cast<size_t>(use.block);
      if (changed[b]) beside -= problem_.block_slots[b];
    }
    times.push_back(down_.Of(std::max<int64_t>(0, beside - room_[next])));
  }
  return times;
}

void PathBound::Compute(const LowerBoundOptions& options, LowerBound& result) {
  GANTRY_CHECK_GE(options.start_stride, 1);
  const std::vector<int64_t> anchors = Anchors(options);
  std::vector<int64_t> starts = anchors;
  for (int64_t start = 0; start < count_; start += options.start_stride) starts.push_back(start);
  std::ranges::sort(starts);
  starts.erase(std::ranges::unique(starts).begin(), starts.end());
  windows_.clear();
  for (const int64_t start : starts) {
    Window window = {.start = start, .up = FetchesFrom(start), .down = WritesFrom(start)};
    // The last fetch before the very next moment comes when there is room for all that it uses.
    const auto uses = problem_.uses_of(problem_.moments[moment_index(start + 1)]);
    const bool creates = std::ranges::any_of(
        uses, [](const BlockUse& use) { return use.access == BlockAccess::kCreate; });
    if (!problem_.link_half_duplex && !creates && window.up[1] > 0 && window.down[1] > 0) {
      window.up[1] = std::max(window.up[1], window.down[1] + up_.Of(1));
    }
    windows_.push_back(std::move(window));
  }
  result.path = -1;
  for (const int64_t anchor : anchors) Pass(anchor, result);
}

void PathBound::Pass(int64_t anchor, LowerBound& result) const {
  Cut cut;
  cut.anchor = anchor;
  cut.border = count_ - anchor;
  cut.start.assign(static_cast<size_t>(count_) + 1, -1);
  cut.parents.assign(static_cast<size_t>(count_) + 1, Parent());
  cut.produced.assign(static_cast<size_t>(count_) + 1, 0);
  PrepareShops(cut);
  cut.computed.assign(static_cast<size_t>(count_) + 1, 0);
  for (int64_t p = 0; p < count_; ++p) {
    const auto index = static_cast<size_t>(p);
    cut.computed[index + 1] =
        cut.computed[index] + problem_.moments[moment_index(cut.anchor + p)].compute;
  }
  for (int64_t position = 0; position <= count_; ++position) {
    Reach(cut, position);
    if (position < count_) Leave(cut, position);
  }
  if (cut.start.back() > result.path) Record(cut, result);
}

// Release windows begin at moments of this step, before the border, that complete a gradient.
void PathBound::PrepareShops(Cut& cut) const {
  std::vector<int64_t> begins;
  const auto& completes = border_ == nullptr ? completes_ : border_completes_;
  for (int64_t m = cut.anchor; m < count_; ++m) {
    if (!completes[static_cast<size_t>(m)].empty()) begins.push_back(m - cut.anchor);
  }
  const size_t shops = std::min(begins.size(), kReleaseBeginsMax);
  for (size_t i = 0; i < shops; ++i) {
    if (border_ != nullptr) {
      cut.borders.push_back({.position = begins[i * begins.size() / shops]});
      continue;
    }
    ReleaseShop shop;
    shop.position = begins[i * begins.size() / shops];
    cut.shops.push_back(shop);
  }
}

void PathBound::Reach(Cut& cut, int64_t position) const {
  if (position == 0) {
    cut.start[0] = 0;
  } else {
    const auto before = static_cast<size_t>(position - 1);
    cut.Offer(position,
              cut.start[before] + problem_.moments[moment_index(cut.anchor + position - 1)].compute,
              {.from = position - 1});
  }
  if (position == cut.border) {
    cut.last_norm = cut.norm;
    cut.norm = Cut::Norm();
    cut.norm_shop = ReleaseShop();
    cut.norm_shop.begin = cut.last_norm.time();
    cut.norm_shop.position = cut.last_norm.from();
  }
  if (position == 0) return;
  ReachByWindows(cut, position);
  ReachByUpdates(cut, position);
  if (border_ != nullptr && position >= cut.border) ReachByBorder(cut, position);
}

void PathBound::ReachByBorder(Cut& cut, int64_t position) const {
  const std::vector<int32_t>& used = border_first_used_[moment_index(cut.anchor + position)];
  if (used.empty()) return;
  for (const int32_t chunk : used) {
    const int64_t complete = border_->chunks[static_cast<size_t>(chunk)].complete - cut.anchor;
    for (Cut::Border& border : cut.borders) {
      if (border.position > complete) break;
      ++border.count;
    }
  }
  for (const Cut::Border& border : cut.borders) {
    if (border.count == 0) continue;
    const Nanoseconds compute = cut.computed[static_cast<size_t>(position)] -
                                cut.computed[static_cast<size_t>(border.position) + 1];
    const int64_t room = room_[moment_index(cut.anchor + border.position)];
    cut.Offer(position, border.begin + border_->Least(border.count, room, compute),
              {.is_edge = true, .edge = LowerBound::Edge::kRelease, .from = border.position});
  }
}

void PathBound::ReachByWindows(Cut& cut, int64_t position) const {
  const auto p = static_cast<size_t>(position);
  const int64_t free = room_[moment_index(cut.anchor + position)];
  for (size_t w = 0; w < cut.windows.size(); ++w) {
    const int64_t from = cut.window_positions[w];
    const auto length = static_cast<size_t>(position - from);
    const Nanoseconds begin = cut.start[static_cast<size_t>(from)] +
                              problem_.moments[moment_index(cut.anchor + from)].compute;
    const Nanoseconds down = cut.windows[w]->down[length];
    const Nanoseconds up = cut.windows[w]->up[length];
    cut.Offer(position, begin + up + (problem_.link_half_duplex ? down : 0),
              {.is_edge = true, .edge = LowerBound::Edge::kFetch, .from = from});
    cut.Offer(position, begin + down,
              {.is_edge = true, .edge = LowerBound::Edge::kWrite, .from = from});
  }
  if (!gradient_down_.is_set) return;
  const Wide end = cut.gradient + static_cast<Wide>(gradient_down_.time) * (cut.produced[p] - free);
  if (end <= 0) return;
  cut.Offer(position, static_cast<Nanoseconds>(end / gradient_down_.slots),
            {.is_edge = true, .edge = LowerBound::Edge::kWrite, .from = cut.gradient_position});
}

void PathBound::ReachByUpdates(Cut& cut, int64_t position) const {
  const size_t moment = moment_index(cut.anchor + position);
  const bool next_step = position >= cut.border;
  const auto offer_norm = [&](const Cut::Norm& norm) {
    if (!norm.is_known) return;
    cut.Offer(position, norm.time(),
              {.is_edge = true, .edge = LowerBound::Edge::kNorm, .from = norm.from()});
  };
  switch (problem_.moments[moment].norm) {
    case MovementProblem::Norm::kNotNeeded:
      break;
    case MovementProblem::Norm::kOfThisStep:
      offer_norm(cut.norm);
      break;
    case MovementProblem::Norm::kOfLastStep:
      offer_norm(cut.last_norm);
      break;
  }
  if (!next_step || first_used_[moment].empty()) return;
  for (const int32_t u : first_used_[moment]) {
    const MovementProblem::HostUpdate& update = problem_.updates[static_cast<size_t>(u)];
    cut.norm_shop.Add(problem_, update);
    const int64_t complete = update.complete - cut.anchor;
    for (ReleaseShop& shop : cut.shops) {
      if (shop.position > complete) break;
      shop.Add(problem_, update);
    }
  }
  if (problem_.wait_for_norm && cut.last_norm.is_known) {
    cut.Offer(position, cut.norm_shop.begin + cut.norm_shop.TwoMachines(problem_),
              {.is_edge = true, .edge = LowerBound::Edge::kNorm, .from = cut.norm_shop.position});
  }
  for (const ReleaseShop& shop : cut.shops) {
    if (shop.count() == 0) continue;
    cut.Offer(position, shop.begin + shop.ThreeMachines(problem_),
              {.is_edge = true, .edge = LowerBound::Edge::kRelease, .from = shop.position});
  }
}

// After the moment at `position` has started: what can begin there.
void PathBound::Leave(Cut& cut, int64_t position) const {
  const auto p = static_cast<size_t>(position);
  const int64_t time = cut.anchor + position;
  const size_t moment = moment_index(time);
  const Nanoseconds end = cut.start[p] + problem_.moments[moment].compute;
  for (const Window& window : windows_) {
    if (window.start != static_cast<int64_t>(moment)) continue;
    cut.windows.push_back(&window);
    cut.window_positions.push_back(position);
  }
  const Wide gradient = static_cast<Wide>(end) * gradient_down_.slots -
                        static_cast<Wide>(gradient_down_.time) * cut.produced[p];
  if (gradient > cut.gradient) {
    cut.gradient = gradient;
    cut.gradient_position = position;
  }
  cut.produced[p + 1] = cut.produced[p] + complete_slots_[moment];
  if (static_cast<int64_t>(moment) == problem_.norm_moment) {
    cut.norm.is_known = true;
    cut.norm.moment = end;
    cut.norm.moment_position = position;
  }
  for (Cut::Border& border : cut.borders) {
    if (border.position == position && position < cut.border) border.begin = end;
  }
  if (completes_[moment].empty()) return;
  cut.norm.is_known = true;
  if (end > cut.norm.down) {
    cut.norm.down = end;
    cut.norm.position = position;
  }
  for (const int32_t u : completes_[moment]) {
    const int32_t gradient_block = problem_.updates[static_cast<size_t>(u)].gradient;
    cut.norm.down += LaneTime(problem_.device_to_host, problem_.block_bytes(gradient_block));
  }
  for (ReleaseShop& shop : cut.shops) {
    if (shop.position == position && position < cut.border) shop.begin = end;
  }
}

void PathBound::Record(const Cut& cut, LowerBound& result) const {
  result.path = cut.start.back();
  result.fetch_stall = result.write_stall = result.release_stall = 0;
  result.windows.clear();
  int64_t position = count_;
  while (position > 0) {
    const auto p = static_cast<size_t>(position);
    const Parent& parent = cut.parents[p];
    const auto from = static_cast<size_t>(parent.from);
    if (parent.is_edge) {
      const Nanoseconds stall =
          cut.start[p] - cut.start[from] - (cut.computed[p] - cut.computed[from]);
      result.windows.push_back({.edge = parent.edge,
                                .begin = static_cast<int32_t>(cut.anchor + parent.from),
                                .end = static_cast<int32_t>(cut.anchor + position),
                                .stall = stall});
      Nanoseconds& part = parent.edge == LowerBound::Edge::kFetch   ? result.fetch_stall
                          : parent.edge == LowerBound::Edge::kWrite ? result.write_stall
                                                                    : result.release_stall;
      part += stall;
    }
    position = parent.from;
  }
  std::ranges::reverse(result.windows);
}

}  // namespace gantry
