#include "placement_policy/testing/random_trace.h"

#include <algorithm>
#include <vector>

#include "base/bytes.h"

namespace gantry {
namespace {

// Gives some of the blocks that exist to chunks, each to one at most.
void AddChunks(Dice& dice, std::vector<int32_t> present, Trace& trace) {
  const auto take = [&] {
    const auto at = static_cast<size_t>(dice.Below(static_cast<int64_t>(present.size())));
    const int32_t block = present[at];
    present.erase(present.begin() + static_cast<std::ptrdiff_t>(at));
    return block;
  };
  const int64_t chunk_count = dice.Below(4);
  for (int64_t c = 0; c < chunk_count && !present.empty(); ++c) {
    TraceChunk chunk{.parameter = take()};
    if (!present.empty() && dice.Below(2) == 0) chunk.gradient = take();
    for (int32_t& state : chunk.states) {
      if (!present.empty() && dice.Below(2) == 0) state = take();
    }
    trace.chunks.push_back(chunk);
  }
}

// The moments hold at least what is saved during them.
void AddActivations(Dice& dice, Trace& trace) {
  const auto moment_count = static_cast<int64_t>(trace.moments.size());
  if (moment_count < 2) return;
  const int64_t saved_count = dice.Below(4);
  for (int64_t i = 0; i < saved_count; ++i) {
    const int64_t created = dice.Below(moment_count - 1);
    const int64_t used = created + 1 + dice.Below(moment_count - created - 1);
    const SavedActivation saved{.created = static_cast<int32_t>(created),
                                .used = static_cast<int32_t>(used),
                                .slots = dice.Below(5),
                                .recompute = dice.Below(1000)};
    for (int64_t m = created; m <= used; ++m) {
      trace.moments[static_cast<size_t>(m)].activation_slots += saved.slots;
    }
    trace.activations.push_back(saved);
  }
}

}  // namespace

Trace RandomTrace(Dice& dice) {
  Trace trace;
  std::vector<int32_t> present;
  const int64_t block_count = 1 + dice.Below(12);
  for (int32_t block = 0; block < block_count; ++block) {
    trace.block_slots.push_back(static_cast<int8_t>(block == 0 ? 1 : dice.Below(3)));
    if (trace.block_slots.back() > 0) present.push_back(block);
  }
  trace.names = {"matmul", "norm", "update"};
  const int64_t moment_count = 1 + dice.Below(20);
  for (int64_t m = 0; m < moment_count; ++m) {
    const int64_t use_count = dice.Below(5);
    trace.moments.push_back({.phase = dice.Pick(kAllPhases),
                             .name = static_cast<int32_t>(dice.Below(3)),
                             .first_use = static_cast<int64_t>(trace.uses.size()),
                             .use_count = use_count,
                             .compute = dice.Below(1000),
                             .activation_slots = dice.Below(8),
                             .micro_batch = static_cast<int32_t>(dice.Below(3)),
                             .layer = static_cast<int32_t>(dice.Below(4)) - 1});
    for (int64_t u = 0; u < use_count; ++u) {
      trace.uses.push_back(
          {.block = dice.Pick(present), .access = static_cast<BlockAccess>(dice.Below(4))});
    }
  }
  if (trace.uses.empty()) {
    trace.uses.push_back({.block = 0, .access = BlockAccess::kRead});
    trace.moments[0].use_count = 1;
    for (size_t m = 1; m < trace.moments.size(); ++m) trace.moments[m].first_use = 1;
  }
  AddChunks(dice, present, trace);
  AddActivations(dice, trace);
  trace.slot_bytes = Bytes(dice.Below(2) == 0 ? 0 : 1 + dice.Below(int64_t{1} << 30));
  trace.tokens = dice.Below(1 << 20);
  return trace;
}

}  // namespace gantry
