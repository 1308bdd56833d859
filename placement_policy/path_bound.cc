#include "placement_policy/path_bound.h"

#include <algorithm>

#include "base/check.h"
#include "placement_policy/interval_sweep.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

// Release windows begin at no more moments than this, spread evenly, so that the work stays
// proportional to the updates.
constexpr size_t kReleaseBeginsMax = 256;

__extension__ using Wide = __int128;

}  // namespace

Nanoseconds SlotTime::Of(int64_t count) const {
  return static_cast<Nanoseconds>(static_cast<Wide>(time) * count / slots);
}

void SlotTime::Include(Nanoseconds block_time, int64_t block_slots) {
  const bool less = static_cast<Wide>(block_time) * slots < static_cast<Wide>(time) * block_slots;
  if (is_set && !less) return;
  is_set = true;
  time = block_time;
  slots = block_slots;
}

std::vector<int64_t> BaseSlots(const MovementProblem& problem, const UseCycle& cycle) {
  std::vector<int64_t> base(problem.moments.size() + 1, 0);  // changes first, then sums
  for (size_t use = 0; use < problem.uses.size(); ++use) {
    const UseCycle::Link& link = cycle.links[use];
    const int32_t block = problem.uses[use].block;
    int64_t end = link.moment + 1;
    const int32_t u = cycle.update_of[static_cast<size_t>(block)];
    if (u >= 0 && problem.updates[static_cast<size_t>(u)].gradient == block &&
        link.gap == Gap::kNone) {
      end = problem.updates[static_cast<size_t>(u)].complete + int64_t{1};
    }
    const int64_t slots = problem.block_slots[static_cast<size_t>(block)];
    base[static_cast<size_t>(link.moment)] += slots;
    base[static_cast<size_t>(end)] -= slots;
  }
  for (size_t m = 1; m < base.size(); ++m) base[m] += base[m - 1];
  base.pop_back();
  return base;
}

std::vector<int64_t> RoomBeside(const MovementProblem& problem, const std::vector<int64_t>& base) {
  std::vector<int64_t> room(base.size());
  for (size_t m = 0; m < room.size(); ++m) {
    room[m] = std::max<int64_t>(0, problem.moments[m].capacity - base[m]);
  }
  return room;
}

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
  int64_t border = 0;                       // position at which the next step begins
  std::vector<Nanoseconds> start;           // by position: the longest path to it
  std::vector<Parent> parents;              // by position
  std::vector<const FetchWindow*> windows;  // whose start has been passed
  std::vector<int64_t> window_positions;
  std::vector<int64_t> produced;  // by position: slots of gradients complete since the anchor
  Wide gradient = -static_cast<Wide>(kNever) * kNever;  // the best start of a gradient window
  int64_t gradient_position = 0;
  Norm norm;                // of the step at hand
  Norm last_norm;           // of the one before
  std::vector<Shop> shops;  // by where a release window begins, ascending
  Shop norm_shop;           // after the last norm

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
    if (gap != Gap::kSame && gap != Gap::kNew) continue;
    const int32_t block = problem.uses[use].block;
    up_.Include(LaneTime(problem.host_to_device, problem.block_bytes(block)),
                problem.block_slots[static_cast<size_t>(block)]);
  }
  int64_t last = problem.norm_moment;
  for (size_t u = 0; u < problem.updates.size(); ++u) {
    const MovementProblem::HostUpdate& update = problem.updates[u];
    last = std::max<int64_t>(last, update.complete);
    const int32_t slots = problem.block_slots[static_cast<size_t>(update.gradient)];
    down_.Include(LaneTime(problem.device_to_host, problem.block_bytes(update.gradient)), slots);
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

PathBound::FetchWindow PathBound::FetchesFrom(int64_t start) const {
  UnitsByEnd kept(count_);
  std::vector<int64_t> dropped(static_cast<size_t>(count_) + 1, 0);   // by end after the start
  std::vector<Nanoseconds> made(static_cast<size_t>(count_) + 1, 0);  // times of new versions
  const auto slots = [this](size_t use) {
    return int64_t{problem_.block_slots[static_cast<size_t>(problem_.uses[use].block)]};
  };
  const auto up = [this](size_t use) {
    return LaneTime(problem_.host_to_device, problem_.block_bytes(problem_.uses[use].block));
  };
  // What may be there when the start begins: any content whose version exists.
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
  FetchWindow window{.start = start, .time = {0}};
  int64_t units = 0;
  Nanoseconds forced = 0;
  for (int64_t d = 0;; ++d) {
    if (d > 0) {
      kept.Take(start + d);
      units += dropped[static_cast<size_t>(d)];
      forced += made[static_cast<size_t>(d)];
      window.time.push_back(forced + up_.Of(units));
    }
    if (d == count_) return window;
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

void PathBound::Compute(const LowerBoundOptions& options, LowerBound& result) {
  GANTRY_CHECK_GE(options.start_stride, 1);
  const std::vector<int64_t> anchors = Anchors(options);
  std::vector<int64_t> starts = anchors;
  for (int64_t start = 0; start < count_; start += options.start_stride) starts.push_back(start);
  std::ranges::sort(starts);
  starts.erase(std::ranges::unique(starts).begin(), starts.end());
  windows_.clear();
  for (const int64_t start : starts) windows_.push_back(FetchesFrom(start));
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
  for (int64_t position = 0; position <= count_; ++position) {
    Reach(cut, position);
    if (position < count_) Leave(cut, position);
  }
  if (cut.start.back() > result.path) Record(cut, result);
}

// Release windows begin at moments of this step, before the border, that complete a gradient.
void PathBound::PrepareShops(Cut& cut) const {
  std::vector<int64_t> begins;
  for (int64_t m = cut.anchor; m < count_; ++m) {
    if (!completes_[static_cast<size_t>(m)].empty()) begins.push_back(m - cut.anchor);
  }
  const size_t shops = std::min(begins.size(), kReleaseBeginsMax);
  for (size_t i = 0; i < shops; ++i) {
    Shop shop;
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
    cut.norm_shop = Shop();
    cut.norm_shop.begin = cut.last_norm.time();
    cut.norm_shop.position = cut.last_norm.from();
  }
  if (position == 0) return;
  ReachByWindows(cut, position);
  ReachByUpdates(cut, position);
}

void PathBound::ReachByWindows(Cut& cut, int64_t position) const {
  const auto p = static_cast<size_t>(position);
  const int64_t free = room_[moment_index(cut.anchor + position)];
  for (size_t w = 0; w < cut.windows.size(); ++w) {
    const int64_t from = cut.window_positions[w];
    Nanoseconds time = cut.windows[w]->time[static_cast<size_t>(position - from)];
    if (problem_.link_half_duplex) {
      const int64_t produced = cut.produced[p] - cut.produced[static_cast<size_t>(from)];
      time += down_.Of(std::max<int64_t>(0, produced - free));
    }
    cut.Offer(position, cut.start[static_cast<size_t>(from)] + time,
              {.is_edge = true, .edge = LowerBound::Edge::kFetch, .from = from});
  }
  if (!down_.is_set) return;
  const Wide end = cut.gradient + static_cast<Wide>(down_.time) * (cut.produced[p] - free);
  if (end <= 0) return;
  cut.Offer(position, static_cast<Nanoseconds>(end / down_.slots),
            {.is_edge = true, .edge = LowerBound::Edge::kGradient, .from = cut.gradient_position});
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
    Join(cut.norm_shop, u);
    const int64_t complete = problem_.updates[static_cast<size_t>(u)].complete - cut.anchor;
    for (Shop& shop : cut.shops) {
      if (shop.position > complete) break;
      Join(shop, u);
    }
  }
  if (problem_.wait_for_norm && cut.last_norm.is_known) {
    cut.Offer(position, cut.norm_shop.begin + TwoMachines(cut.norm_shop),
              {.is_edge = true, .edge = LowerBound::Edge::kNorm, .from = cut.norm_shop.position});
  }
  for (const Shop& shop : cut.shops) {
    if (shop.count == 0) continue;
    cut.Offer(position, shop.begin + ThreeMachines(shop),
              {.is_edge = true, .edge = LowerBound::Edge::kRelease, .from = shop.position});
  }
}

// After the moment at `position` has started: what can begin there.
void PathBound::Leave(Cut& cut, int64_t position) const {
  const auto p = static_cast<size_t>(position);
  const int64_t time = cut.anchor + position;
  const size_t moment = moment_index(time);
  const Nanoseconds end = cut.start[p] + problem_.moments[moment].compute;
  for (const FetchWindow& window : windows_) {
    if (window.start != static_cast<int64_t>(moment)) continue;
    cut.windows.push_back(&window);
    cut.window_positions.push_back(position);
  }
  const Wide gradient =
      static_cast<Wide>(end) * down_.slots - static_cast<Wide>(down_.time) * cut.produced[p];
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
  for (Shop& shop : cut.shops) {
    if (shop.position == position && position < cut.border) shop.begin = end;
  }
}

void PathBound::Join(Shop& shop, int32_t update_index) const {
  const MovementProblem::HostUpdate& update = problem_.updates[static_cast<size_t>(update_index)];
  const Nanoseconds down = LaneTime(problem_.device_to_host, problem_.block_bytes(update.gradient));
  const Nanoseconds up = LaneTime(problem_.host_to_device, problem_.block_bytes(update.parameter));
  ++shop.count;
  shop.down_sum += down;
  shop.update_sum += update.update;
  shop.up_sum += up;
  shop.down_least = std::min(shop.down_least, down);
  shop.update_least = std::min(shop.update_least, update.update);
  shop.up_least = std::min(shop.up_least, up);
  shop.before_up_least = std::min(shop.before_up_least, down + update.update);
  shop.after_down_least = std::min(shop.after_down_least, update.update + up);
  if (update.file_bytes == 0) return;
  Nanoseconds file = LaneTime(problem_.file_read, update.file_bytes);
  if (problem_.file_half_duplex) file += LaneTime(problem_.file_write, update.file_bytes);
  ++shop.in_file;
  shop.file_least = std::min(shop.file_least, file);
  shop.after_file_least = std::min(shop.after_file_least, update.update + up);
}

// From the end of the moment that begins it to the end of the last fetch.
Nanoseconds PathBound::ThreeMachines(const Shop& shop) const {
  Nanoseconds time = shop.down_sum + shop.after_down_least;
  time = std::max(time, shop.down_least + shop.update_sum + shop.up_least);
  time = std::max(time, shop.before_up_least + shop.up_sum);
  if (problem_.link_half_duplex) time = std::max(time, shop.down_sum + shop.up_sum);
  return std::max(time, FilesBefore(shop));
}

// From the norm to the end of the last fetch.
Nanoseconds PathBound::TwoMachines(const Shop& shop) const {
  const Nanoseconds time =
      std::max(shop.update_sum + shop.up_least, shop.update_least + shop.up_sum);
  return std::max(time, FilesBefore(shop));
}

// Buffers can hold the states of some before; the others' are read, each into a buffer that a write
// has freed, and the last of them is still to be updated and fetched.
Nanoseconds PathBound::FilesBefore(const Shop& shop) const {
  const int64_t read = shop.in_file - problem_.host_buffers;
  return read <= 0 ? 0 : read * shop.file_least + shop.after_file_least;
}

void PathBound::Record(const Cut& cut, LowerBound& result) const {
  result.path = cut.start.back();
  result.fetch_stall = result.gradient_stall = result.release_stall = 0;
  result.windows.clear();
  std::vector<Nanoseconds> computed(cut.start.size(), 0);
  for (int64_t p = 0; p < count_; ++p) {
    const auto index = static_cast<size_t>(p);
    computed[index + 1] = computed[index] + problem_.moments[moment_index(cut.anchor + p)].compute;
  }
  int64_t position = count_;
  while (position > 0) {
    const auto p = static_cast<size_t>(position);
    const Parent& parent = cut.parents[p];
    const auto from = static_cast<size_t>(parent.from);
    if (parent.is_edge) {
      const Nanoseconds stall = cut.start[p] - cut.start[from] - (computed[p] - computed[from]);
      result.windows.push_back({.edge = parent.edge,
                                .begin = static_cast<int32_t>(cut.anchor + parent.from),
                                .end = static_cast<int32_t>(cut.anchor + position),
                                .stall = stall});
      Nanoseconds& part = parent.edge == LowerBound::Edge::kFetch      ? result.fetch_stall
                          : parent.edge == LowerBound::Edge::kGradient ? result.gradient_stall
                                                                       : result.release_stall;
      part += stall;
    }
    position = parent.from;
  }
  std::ranges::reverse(result.windows);
}

}  // namespace gantry
