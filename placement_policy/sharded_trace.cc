#include "placement_policy/sharded_trace.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr int64_t kNeverLeave = std::numeric_limits<int64_t>::max();

// What a block is on this rank.
enum class Role : uint8_t {
  kOwn,        // of the rank's own chunks, or of no chunk
  kParameter,  // of another rank's chunk, as are the next two
  kGradient,
  kState,
};

absl::Status CheckOptions(const Trace& trace, const ShardOptions& options) {
  if (options.sharding > Sharding::kParameters) {
    return InvalidArgument("shard trace: sharding is ", static_cast<int>(options.sharding));
  }
  if (options.ranks < 1 || options.ranks > kShardRanksMax) {
    return InvalidArgument("shard trace: ranks is ", options.ranks, "; it must be in [1, ",
                           kShardRanksMax, "]");
  }
  if (options.rank < 0 || options.rank >= options.ranks) {
    return InvalidArgument("shard trace: rank is ", options.rank, "; it must be in [0, ",
                           options.ranks - 1, "]");
  }
  GANTRY_RETURN_IF_ERROR(trace.Validate());
  if (trace.chunks.empty() && !trace.uses.empty()) {
    return InvalidArgument("shard trace: the trace does not say which blocks are a chunk");
  }
  return absl::OkStatus();
}

class Sharder {
 public:
  Sharder(const Trace& trace, const ShardOptions& options)
      : trace_(trace), options_(options), roles_(trace.block_slots.size(), Role::kOwn) {
    for (size_t c = 0; c < trace.chunks.size(); ++c) {
      if (static_cast<int64_t>(c) % options.ranks == options.rank) continue;
      const TraceChunk& chunk = trace.chunks[c];
      SetRole(chunk.parameter, Role::kParameter);
      SetRole(chunk.gradient, Role::kGradient);
      for (const int32_t state : chunk.states) SetRole(state, Role::kState);
    }
    NumberRuns();
  }

  absl::StatusOr<Trace> Run() {
    GANTRY_RETURN_IF_ERROR(CheckAccesses());
    MarkStays();
    CopyWithoutMoments();
    for (size_t m = 0; m < trace_.moments.size(); ++m) CopyMoment(m);
    for (SavedActivation& saved : result_.activations) {
      saved.created = static_cast<int32_t>(moved_to_[static_cast<size_t>(saved.created)]);
      saved.used = static_cast<int32_t>(moved_to_[static_cast<size_t>(saved.used)]);
    }
    GANTRY_RETURN_IF_ERROR(result_.Validate());
    return std::move(result_);
  }

 private:
  void SetRole(int32_t block, Role role) {
    if (block >= 0) roles_[static_cast<size_t>(block)] = role;
  }
  Role RoleOf(const BlockUse& use) const { return roles_[static_cast<size_t>(use.block)]; }

  // A run is one pass over one layer: moments next to each other with the same phase, layer and
  // micro-batch.
  void NumberRuns() {
    int64_t run = 0;
    for (size_t m = 0; m < trace_.moments.size(); ++m) {
      const Moment& moment = trace_.moments[m];
      if (m > 0) {
        const Moment& before = trace_.moments[m - 1];
        if (before.phase != moment.phase || before.layer != moment.layer ||
            before.micro_batch != moment.micro_batch) {
          ++run;
        }
      }
      run_of_.push_back(run);
    }
  }

  bool IsUpdateElsewhere(const Moment& moment) const {
    if (moment.phase != Phase::kOptimizer) return false;
    return std::ranges::any_of(trace_.uses_of(moment), [this](const BlockUse& use) {
      return RoleOf(use) == Role::kGradient || RoleOf(use) == Role::kParameter;
    });
  }

  absl::Status CheckAccesses() const {
    for (size_t m = 0; m < trace_.moments.size(); ++m) {
      const Moment& moment = trace_.moments[m];
      if (moment.phase == Phase::kOptimizer) continue;
      for (const BlockUse& use : trace_.uses_of(moment)) {
        const Role role = RoleOf(use);
        const bool is_read = use.access == BlockAccess::kRead;
        const bool is_contribution =
            use.access == BlockAccess::kCreate || use.access == BlockAccess::kWrite;
        if (role == Role::kState || (role == Role::kParameter && !is_read) ||
            (role == Role::kGradient && !is_contribution)) {
          return InvalidArgument("shard trace: moments[", m, "] uses block ", use.block,
                                 " in a way that no step of one device does before its updates");
        }
      }
    }
    return absl::OkStatus();
  }

  // Runs that may lie between two uses of a block that stays.
  int64_t StayDistance(Role role, size_t from, size_t to) const {
    switch (role) {
      case Role::kParameter:
        return options_.sharding == Sharding::kParameters ? 1 : kNeverLeave;
      case Role::kGradient:
        // Contributions of one micro-batch go to the owner together.
        return options_.sharding == Sharding::kStates ||
                       trace_.moments[from].micro_batch == trace_.moments[to].micro_batch
                   ? kNeverLeave
                   : 1;
      case Role::kOwn:
      case Role::kState:
        break;
    }
    return kNeverLeave;
  }

  // Whether the block is there before each use, and stays after it.
  void MarkStays() {
    is_there_.assign(trace_.uses.size(), false);
    stays_.assign(trace_.uses.size(), false);
    struct Last {
      size_t use;
      size_t moment;
    };
    constexpr size_t kNone = std::numeric_limits<size_t>::max();
    std::vector<Last> last(trace_.block_slots.size(), {kNone, 0});
    for (size_t m = 0; m < trace_.moments.size(); ++m) {
      const Moment& moment = trace_.moments[m];
      if (moment.phase == Phase::kOptimizer) continue;
      for (int64_t i = 0; i < moment.use_count; ++i) {
        const auto use = static_cast<size_t>(moment.first_use + i);
        Last& before = last[static_cast<size_t>(trace_.uses[use].block)];
        if (before.use != kNone && run_of_[m] - run_of_[before.moment] <=
                                       StayDistance(RoleOf(trace_.uses[use]), before.moment, m)) {
          is_there_[use] = true;
          stays_[before.use] = true;
        }
        before = {use, m};
      }
    }
  }

  void CopyWithoutMoments() {
    result_.block_slots = trace_.block_slots;
    result_.chunks = trace_.chunks;
    for (size_t block = 0; block < roles_.size(); ++block) {
      if (roles_[block] == Role::kState) result_.block_slots[block] = 0;
    }
    for (TraceChunk& chunk : result_.chunks) {
      for (int32_t& state : chunk.states) {
        if (state >= 0 && roles_[static_cast<size_t>(state)] == Role::kState) state = -1;
      }
    }
    result_.names = trace_.names;
    gather_name_ = static_cast<int32_t>(result_.names.size());
    result_.names.emplace_back("all-gather");
    result_.names.emplace_back("reduce-scatter");
    result_.activations = trace_.activations;
    result_.slot_bytes = trace_.slot_bytes;
    result_.tokens = trace_.tokens;
  }

  // The uses that `access_of` gives an access, in a moment before or after `like` that takes no
  // time; no moment when there are none.
  template <typename AccessOf>
  void AddTransfer(const Moment& like, int32_t name, AccessOf access_of) {
    Moment moment = like;
    moment.name = name;
    moment.compute = 0;
    moment.first_use = static_cast<int64_t>(result_.uses.size());
    for (int64_t i = 0; i < like.use_count; ++i) {
      const auto use = static_cast<size_t>(like.first_use + i);
      const std::pair<bool, BlockAccess> access = access_of(use);
      if (access.first) result_.uses.push_back({trace_.uses[use].block, access.second});
    }
    moment.use_count = static_cast<int64_t>(result_.uses.size()) - moment.first_use;
    if (moment.use_count > 0) result_.moments.push_back(moment);
  }

  void CopyMoment(size_t m) {
    const Moment& moment = trace_.moments[m];
    if (IsUpdateElsewhere(moment)) {
      moved_to_.push_back(static_cast<int64_t>(result_.moments.size()));
      return;
    }
    const bool computes = moment.phase != Phase::kOptimizer;
    if (computes) {
      AddTransfer(moment, gather_name_, [this](size_t use) {
        const bool arrives = RoleOf(trace_.uses[use]) == Role::kParameter && !is_there_[use];
        return std::pair(arrives, BlockAccess::kCreate);
      });
    }
    moved_to_.push_back(static_cast<int64_t>(result_.moments.size()));
    Moment copy = moment;
    copy.first_use = static_cast<int64_t>(result_.uses.size());
    for (int64_t i = 0; i < moment.use_count; ++i) {
      result_.uses.push_back(UseHere(static_cast<size_t>(moment.first_use + i), computes));
    }
    result_.moments.push_back(copy);
    if (!computes) return;
    AddTransfer(moment, gather_name_ + 1, [this](size_t use) {
      const bool leaves = RoleOf(trace_.uses[use]) == Role::kGradient && !stays_[use];
      return std::pair(leaves, BlockAccess::kConsume);
    });
  }

  BlockUse UseHere(size_t use, bool computes) const {
    BlockUse here = trace_.uses[use];
    if (!computes) return here;
    if (RoleOf(here) == Role::kParameter && !stays_[use]) here.access = BlockAccess::kConsume;
    if (RoleOf(here) == Role::kGradient) {
      here.access = is_there_[use] ? BlockAccess::kWrite : BlockAccess::kCreate;
    }
    return here;
  }

  const Trace& trace_;
  const ShardOptions& options_;
  std::vector<Role> roles_;        // per block
  std::vector<int64_t> run_of_;    // per moment
  std::vector<bool> is_there_;     // per use
  std::vector<bool> stays_;        // per use
  std::vector<int64_t> moved_to_;  // moment -> moment of the result
  int32_t gather_name_ = 0;
  Trace result_;
};

}  // namespace

std::string_view Name(Sharding sharding) {
  switch (sharding) {
    case Sharding::kStates:
      return "states";
    case Sharding::kGradients:
      return "gradients";
    case Sharding::kParameters:
      return "parameters";
  }
  GANTRY_CHECK(false) << "sharding " << static_cast<int>(sharding);
  return "";
}

absl::StatusOr<Trace> ShardTrace(const Trace& trace, const ShardOptions& options) {
  GANTRY_RETURN_IF_ERROR(CheckOptions(trace, options));
  if (options.ranks == 1) return trace;
  return Sharder(trace, options).Run();
}

}  // namespace gantry
