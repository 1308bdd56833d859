#include "placement_policy/testing/random_problem.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "placement_policy/machine.h"
#include "placement_policy/planned_slack.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

// A sequence of draws.
class Draws {
 public:
  explicit Draws(uint64_t seed) : random_({.seed = seed, .stream = 0}) {}

  int64_t Between(int64_t low, int64_t high) {  // both included
    return low + random_.Below(high - low + 1, index_++);
  }
  bool Chance(int64_t percent) { return Between(0, 99) < percent; }

 private:
  const Random random_;
  uint64_t index_ = 0;
};

void AddMoment(MovementProblem& problem, const std::vector<BlockUse>& uses, Nanoseconds compute) {
  problem.moments.push_back({.first_use = static_cast<int64_t>(problem.uses.size()),
                             .use_count = static_cast<int64_t>(uses.size()),
                             .compute = compute,
                             .source = static_cast<int64_t>(problem.moments.size())});
  problem.uses.insert(problem.uses.end(), uses.begin(), uses.end());
}

int64_t SlotsOf(const MovementProblem& problem, const MovementProblem::Moment& moment) {
  int64_t slots = 0;
  for (const BlockUse& use : problem.uses_of(moment)) {
    slots += problem.block_slots[static_cast<size_t>(use.block)];
  }
  return slots;
}

bool HasSizes(SmallProblem kind) {
  return kind == SmallProblem::kDirtySizes || kind == SmallProblem::kPalindromeSizes;
}

// A moment that uses one or two blocks.
std::vector<BlockUse> DrawUses(Draws& draws, int32_t blocks, int64_t written_percent) {
  std::vector<BlockUse> uses;
  const auto first = static_cast<int32_t>(draws.Between(0, blocks - 1));
  const auto shift = static_cast<int32_t>(draws.Between(1, blocks - 1));
  for (const int32_t block : {first, (first + shift) % blocks}) {
    BlockAccess access = BlockAccess::kRead;
    if (draws.Chance(written_percent)) {
      access = draws.Chance(15) ? BlockAccess::kCreate : BlockAccess::kWrite;
    }
    uses.push_back({.block = block, .access = access});
    if (draws.Chance(60)) break;
  }
  return uses;
}

// Uses in any order. In the dirty kinds the last block may be one that is created, perhaps used,
// and consumed.
void AddMixedMoments(MovementProblem& problem, Draws& draws, bool dirty) {
  const auto blocks = static_cast<int32_t>(problem.block_slots.size());
  const int64_t count = draws.Between(6, 12);
  const bool transient = dirty && blocks > 3 && draws.Chance(40);
  const int64_t created = draws.Between(0, count - 3);
  const int64_t consumed = draws.Between(created + 1, count - 1);
  for (int64_t m = 0; m < count; ++m) {
    std::vector<BlockUse> uses = DrawUses(draws, transient ? blocks - 1 : blocks, dirty ? 40 : 0);
    if (transient && m >= created && m <= consumed) {
      BlockAccess access = draws.Chance(50) ? BlockAccess::kRead : BlockAccess::kWrite;
      if (m == created) access = BlockAccess::kCreate;
      if (m == consumed) access = BlockAccess::kConsume;
      if (m == created || m == consumed || draws.Chance(25)) {
        uses.resize(1);
        uses.push_back({.block = blocks - 1, .access = access});
      }
    }
    AddMoment(problem, uses, draws.Between(0, 6));
  }
}

// Block b at moments b and 2 x blocks - 1 - b.
void AddPalindrome(MovementProblem& problem, Draws& draws) {
  const auto blocks = static_cast<int32_t>(problem.block_slots.size());
  for (int32_t b = 0; b < blocks; ++b) {
    AddMoment(problem, {{.block = b, .access = BlockAccess::kRead}}, draws.Between(0, 6));
  }
  for (int32_t b = blocks - 1; b >= 0; --b) {
    const BlockAccess access = draws.Chance(80) ? BlockAccess::kWrite : BlockAccess::kRead;
    AddMoment(problem, {{.block = b, .access = access}}, draws.Between(0, 6));
  }
}

Lane SmallLane(Draws& draws) {
  const int64_t time = draws.Between(1, 4);  // of a slot; LaneTime rounds up to it
  return {.bytes_per_second = (1'000'000'000 + time - 1) / time};
}

// The blocks of a chunk; -1 where it has none.
struct ChunkBlocks {
  int32_t parameter = -1;
  int32_t gradient = -1;
  std::vector<int32_t> states = {};
  bool on_device = false;  // where it is updated
};

// Builds a training step moment by moment.
class TrainingStep {
 public:
  TrainingStep(const TrainingProblemOptions& options, uint64_t seed)
      : options_(options), draws_(seed) {}

  MovementProblem Build() {
    DrawTiles();
    AddBlocks();
    SetLanes();
    if (options_.device_updates == TrainingProblemOptions::DeviceUpdates::kNextForward) {
      for (size_t c = 0; c < chunks_.size(); ++c) {
        if (chunks_[c].on_device) AddDeviceUpdate(c);
      }
    }
    for (int32_t layer = 0; layer < options_.layers; ++layer) AddForward(layer);
    if (options_.tied) AddTile({0});
    backward_begin_ = static_cast<int64_t>(problem_.moments.size());
    if (options_.tied) AddBackwardTile({0});
    for (int32_t layer = options_.layers - 1; layer >= 0; --layer) {
      if (options_.recompute) AddForward(layer);
      for (size_t t = tiles_[static_cast<size_t>(layer)].size(); t-- > 0;) {
        AddBackwardTile(tiles_[static_cast<size_t>(layer)][t]);
        AddFusedUpdates(layer, t);
      }
    }
    const auto last_gradient = static_cast<int32_t>(problem_.moments.size()) - 1;
    // The gradients of chunks updated on the device count, too.
    const bool any_device = std::ranges::any_of(chunks_, &ChunkBlocks::on_device);
    const bool named = options_.wait_for_norm && (any_device || draws_.Chance(50));
    problem_.norm_moment = named ? last_gradient : -1;
    if (options_.device_updates == TrainingProblemOptions::DeviceUpdates::kAfterBackward) {
      for (size_t c = 0; c < chunks_.size(); ++c) {
        if (chunks_[c].on_device) AddDeviceUpdate(c);
      }
    }
    SetCreates();
    AddHostUpdates();
    SetCapacities();
    return std::move(problem_);
  }

 private:
  using Chunks = std::vector<int32_t>;  // that a tile uses

  // Cuts each layer's parameters into tiles.
  void DrawTiles() {
    for (int32_t layer = 0; layer < options_.layers; ++layer) {
      const int64_t begin = int64_t{layer} * options_.eighths_per_layer;
      std::set<int64_t> cuts = {begin, begin + options_.eighths_per_layer};
      for (int32_t t = 1; t < options_.tiles_per_layer; ++t) {
        const int64_t even =
            begin + int64_t{t} * options_.eighths_per_layer / options_.tiles_per_layer;
        cuts.insert(std::clamp(even + draws_.Between(-2, 2), begin + 1,
                               begin + options_.eighths_per_layer - 1));
      }
      std::vector<Chunks> tiles;
      for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
        Chunks chunks;
        for (int64_t c = *cut / 8; c <= (*std::next(cut) - 1) / 8; ++c) {
          chunks.push_back(static_cast<int32_t>(c));
        }
        tiles.push_back(std::move(chunks));
      }
      tiles_.push_back(std::move(tiles));
    }
  }

  void AddBlocks() {
    const bool any_device = options_.device_updates != TrainingProblemOptions::DeviceUpdates::kNone;
    chunks_.resize(static_cast<size_t>(tiles_.back().back().back()) + 1);
    for (ChunkBlocks& chunk : chunks_) {
      chunk.parameter = AddBlock(1);
      chunk.gradient = AddBlock(1);
      chunk.on_device = any_device && draws_.Chance(33);
      const bool in_file =
          options_.files != TrainingProblemOptions::Files::kNone && draws_.Chance(50);
      if (!chunk.on_device) {
        host_states_in_file_.push_back(in_file);
        continue;
      }
      for (int state = 0; state < 3; ++state) {
        chunk.states.push_back(AddBlock(2));
        problem_.in_file.back() = in_file;
      }
    }
  }

  int32_t AddBlock(int32_t slots) {
    problem_.block_slots.push_back(slots);
    problem_.in_file.push_back(false);
    return static_cast<int32_t>(problem_.block_slots.size()) - 1;
  }

  void SetLanes() {
    problem_.slot_bytes = 1 << 20;
    const int64_t copy = std::max<int64_t>(1, kTileCompute * options_.copy_percent / 100);
    const auto lane = [&](int64_t percent_low, int64_t percent_high) {
      const int64_t time =
          std::max<int64_t>(1, copy * draws_.Between(percent_low, percent_high) / 100);
      return Lane{
          .bytes_per_second = std::max<int64_t>(1, problem_.slot_bytes * 1'000'000'000 / time),
          .latency_nanoseconds = options_.latency_nanoseconds};
    };
    problem_.host_to_device = lane(80, 120);
    problem_.device_to_host = lane(80, 120);
    update_nanoseconds_ = copy * draws_.Between(20, 200) / 100;
    problem_.wait_for_norm = options_.wait_for_norm;
    if (options_.files == TrainingProblemOptions::Files::kNone) return;
    problem_.file_read = lane(20, 150);
    problem_.file_write = lane(20, 200);
    problem_.file_half_duplex = options_.files == TrainingProblemOptions::Files::kHalfDuplex;
    problem_.host_buffers = draws_.Between(2, 6);
  }

  Nanoseconds DrawCompute(int64_t factor) {
    return kTileCompute * factor * draws_.Between(60, 140) / 100;
  }

  void AddTile(const Chunks& chunks) {
    std::vector<BlockUse> uses;
    for (const int32_t c : chunks) {
      uses.push_back({chunks_[static_cast<size_t>(c)].parameter, BlockAccess::kRead});
    }
    AddMoment(problem_, uses, DrawCompute(1));
  }

  void AddForward(int32_t layer) {
    for (const Chunks& tile : tiles_[static_cast<size_t>(layer)]) AddTile(tile);
  }

  void AddBackwardTile(const Chunks& chunks) {
    std::vector<BlockUse> uses;
    for (const int32_t c : chunks) {
      uses.push_back({chunks_[static_cast<size_t>(c)].parameter, BlockAccess::kRead});
      uses.push_back({chunks_[static_cast<size_t>(c)].gradient, BlockAccess::kWrite});
    }
    AddMoment(problem_, uses, DrawCompute(2));
  }

  // Updates of the chunks whose gradients are complete once backward has passed this tile.
  void AddFusedUpdates(int32_t layer, size_t tile) {
    if (options_.device_updates != TrainingProblemOptions::DeviceUpdates::kWithinBackward) return;
    const auto& tiles = tiles_[static_cast<size_t>(layer)];
    const Chunks& own = tiles[tile];
    int32_t needed_later = -1;  // the largest chunk of the tiles that backward has not passed
    if (tile > 0) {
      needed_later = tiles[tile - 1].back();
    } else if (layer > 0) {
      needed_later = tiles_[static_cast<size_t>(layer) - 1].back().back();
    }
    for (size_t i = own.size(); i-- > 0;) {
      if (own[i] > needed_later && chunks_[static_cast<size_t>(own[i])].on_device) {
        AddDeviceUpdate(static_cast<size_t>(own[i]));
      }
    }
  }

  void AddDeviceUpdate(size_t c) {
    std::vector<BlockUse> uses = {{chunks_[c].parameter, BlockAccess::kWrite},
                                  {chunks_[c].gradient, BlockAccess::kConsume}};
    for (const int32_t state : chunks_[c].states) uses.push_back({state, BlockAccess::kWrite});
    AddMoment(problem_, uses, DrawCompute(1));
    MovementProblem::Moment& moment = problem_.moments.back();
    moment.source = -1;
    if (!options_.wait_for_norm) return;
    moment.norm = options_.device_updates == TrainingProblemOptions::DeviceUpdates::kNextForward
                      ? MovementProblem::Norm::kOfLastStep
                      : MovementProblem::Norm::kOfThisStep;
    // Within backward an update cannot wait for the norm of all gradients.
    if (options_.device_updates == TrainingProblemOptions::DeviceUpdates::kWithinBackward) {
      moment.norm = MovementProblem::Norm::kNotNeeded;
    }
  }

  // The first use of a gradient in backward creates it.
  void SetCreates() {
    std::set<int32_t> gradients;
    for (const ChunkBlocks& chunk : chunks_) gradients.insert(chunk.gradient);
    for (auto m = static_cast<size_t>(backward_begin_); m < problem_.moments.size(); ++m) {
      const MovementProblem::Moment& moment = problem_.moments[m];
      for (int64_t u = moment.first_use; u < moment.first_use + moment.use_count; ++u) {
        BlockUse& use = problem_.uses[static_cast<size_t>(u)];
        if (gradients.erase(use.block) > 0) use.access = BlockAccess::kCreate;
      }
    }
  }

  void AddHostUpdates() {
    size_t on_host = 0;
    for (const ChunkBlocks& chunk : chunks_) {
      if (chunk.on_device) continue;
      MovementProblem::HostUpdate update = {
          .parameter = chunk.parameter, .gradient = chunk.gradient, .update = update_nanoseconds_};
      for (size_t m = 0; m < problem_.moments.size(); ++m) {
        for (const BlockUse& use : problem_.uses_of(problem_.moments[m])) {
          if (use.block == chunk.gradient) update.complete = static_cast<int32_t>(m);
        }
      }
      if (host_states_in_file_[on_host++]) update.file_bytes = 6 * problem_.slot_bytes;
      problem_.updates.push_back(update);
    }
  }

  // What a moment should not have to do without: its own blocks, and the gradients of host updates
  // that are created and not complete. Beside that, spare slots that shrink in forward and grow in
  // backward.
  void SetCapacities() {
    const int64_t spare = static_cast<int64_t>(chunks_.size()) * options_.spare_slots_percent / 100;
    const UseCycle cycle = LinkUses(problem_);
    std::set<int32_t> held;
    const auto count = static_cast<int64_t>(problem_.moments.size());
    for (int64_t m = 0; m < count; ++m) {
      MovementProblem::Moment& moment = problem_.moments[static_cast<size_t>(m)];
      int64_t slots = SlotsOf(problem_, moment);
      for (const BlockUse& use : problem_.uses_of(moment)) held.erase(use.block);
      for (const int32_t block : held) slots += problem_.block_slots[static_cast<size_t>(block)];
      for (int64_t u = moment.first_use; u < moment.first_use + moment.use_count; ++u) {
        const int32_t block = problem_.uses[static_cast<size_t>(u)].block;
        const int32_t update = cycle.update_of[static_cast<size_t>(block)];
        const bool gradient =
            update >= 0 && problem_.updates[static_cast<size_t>(update)].gradient == block;
        if (gradient && cycle.links[static_cast<size_t>(u)].gap == Gap::kSame) held.insert(block);
      }
      const int64_t from_middle = m < backward_begin_ ? backward_begin_ - m : m - backward_begin_;
      moment.capacity =
          slots + 1 + spare / 2 + spare * from_middle / (2 * count) + draws_.Between(0, 1);
    }
  }

  static constexpr Nanoseconds kTileCompute = 100'000;

  const TrainingProblemOptions options_;
  Draws draws_;
  MovementProblem problem_;
  std::vector<std::vector<Chunks>> tiles_;  // by layer
  std::vector<ChunkBlocks> chunks_;
  std::vector<bool> host_states_in_file_;
  Nanoseconds update_nanoseconds_ = 0;
  int64_t backward_begin_ = 0;
};

}  // namespace

std::string_view ToString(SmallProblem kind) {
  switch (kind) {
    case SmallProblem::kClean:
      return "clean";
    case SmallProblem::kCleanVarying:
      return "clean, varying capacity";
    case SmallProblem::kDirtyVarying:
      return "dirty, varying capacity";
    case SmallProblem::kDirtySizes:
      return "dirty, sizes 1-2";
    case SmallProblem::kPalindromeDirty:
      return "palindrome, dirty";
    case SmallProblem::kPalindromeSizes:
      return "palindrome, sizes 1-2";
  }
  return "?";
}

MovementProblem RandomSmallProblem(SmallProblem kind, uint64_t seed) {
  Draws draws(seed * kSmallProblems.size() + static_cast<uint64_t>(kind));
  const bool palindrome =
      kind == SmallProblem::kPalindromeDirty || kind == SmallProblem::kPalindromeSizes;
  MovementProblem problem;
  const int64_t blocks = draws.Between(3, 6);
  for (int64_t b = 0; b < blocks; ++b) {
    problem.block_slots.push_back(HasSizes(kind) ? static_cast<int32_t>(draws.Between(1, 2)) : 1);
  }
  problem.in_file.assign(problem.block_slots.size(), false);
  problem.host_to_device = SmallLane(draws);
  problem.device_to_host = SmallLane(draws);
  if (palindrome) {
    AddPalindrome(problem, draws);
  } else {
    const bool dirty = kind == SmallProblem::kDirtyVarying || kind == SmallProblem::kDirtySizes;
    AddMixedMoments(problem, draws, dirty);
  }
  const int64_t slots = std::reduce(problem.block_slots.begin(), problem.block_slots.end());
  const int64_t low = 2;
  const int64_t high = std::min<int64_t>(slots - 1, HasSizes(kind) ? 6 : 4);
  const int64_t fixed = draws.Between(low, high);
  for (MovementProblem::Moment& moment : problem.moments) {
    const int64_t capacity = kind == SmallProblem::kClean ? fixed : draws.Between(low, high);
    moment.capacity = std::max(capacity, SlotsOf(problem, moment));
  }
  return problem;
}

TrainingProblemOptions RandomTrainingOptions(uint64_t seed) {
  Draws draws(seed);
  using Options = TrainingProblemOptions;
  Options options;
  options.layers = static_cast<int32_t>(draws.Between(1, 6));
  options.tiles_per_layer = static_cast<int32_t>(draws.Between(1, 5));
  options.eighths_per_layer = static_cast<int32_t>(draws.Between(8, 48));
  options.recompute = draws.Chance(50);
  options.tied = draws.Chance(30);
  options.device_updates = static_cast<Options::DeviceUpdates>(draws.Between(0, 3));
  options.files = static_cast<Options::Files>(draws.Between(0, 2));
  options.wait_for_norm = draws.Chance(40);
  options.spare_slots_percent = static_cast<int32_t>(draws.Between(0, 120));
  options.copy_percent = static_cast<int32_t>(draws.Between(20, 300));
  return options;
}

MovementProblem RandomTrainingProblem(const TrainingProblemOptions& options, uint64_t seed) {
  GANTRY_CHECK(options.layers >= 1 && options.tiles_per_layer >= 1);
  GANTRY_CHECK_GE(options.eighths_per_layer, 8);
  return TrainingStep(options, seed).Build();
}

void LetBlocksStay(MovementProblem& problem, uint64_t seed) {
  Draws draws(seed);
  problem.stays.assign(problem.block_slots.size(), false);
  const std::vector<bool> none(problem.uses.size(), false);
  const UseCycle cycle = LinkUses(problem);
  for (size_t tries = 0; tries < problem.block_slots.size(); ++tries) {
    const auto block = static_cast<size_t>(draws.Between(0, std::ssize(problem.block_slots) - 1));
    const bool moves = problem.in_file[block] || cycle.update_of[block] >= 0;
    if (moves || problem.stays[block]) continue;
    problem.stays[block] = true;
    const std::vector<int64_t> slack = PlannedSlack(problem, LinkUses(problem), none);
    if (std::ranges::min(slack) < 0) problem.stays[block] = false;
  }
}

TrainingProblemOptions LargeTrainingOptions() {
  return {.layers = 80,
          .tiles_per_layer = 10,
          .eighths_per_layer = 105,
          .recompute = true,
          .spare_slots_percent = 10,
          .copy_percent = 100};
}

}  // namespace gantry
