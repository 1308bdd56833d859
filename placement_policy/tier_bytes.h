// Where the bytes of a training step lie under a movement decision: by tier, and by what they are
// for. A pure function.
#ifndef GANTRY_PLACEMENT_POLICY_TIER_BYTES_H_
#define GANTRY_PLACEMENT_POLICY_TIER_BYTES_H_

#include <cstdint>

#include "base/bytes.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/trace.h"

namespace gantry {

struct KindBytes {
  Bytes parameters = Bytes(0);
  Bytes gradients = Bytes(0);
  Bytes states = Bytes(0);  // of the optimizer
  Bytes activations = Bytes(0);
  Bytes buffers = Bytes(0);  // for what is on its way

  Bytes total() const { return parameters + gradients + states + activations + buffers; }
};

struct TierBytes {
  // At the moment that leaves the least room. Blocks that the plan keeps or that the moment uses;
  // buffers are the rest of the budget, for blocks on their way or for nothing.
  KindBytes device;
  int64_t fullest_moment = 0;  // of the problem
  // What has its home there; buffers are for states from files. None when unified.
  KindBytes host;
  // What has its home there: states, and in a unified machine whatever leaves its memory.
  KindBytes files;
};

// REQUIRES: the decision is of this trace and machine, and the trace has chunks.
TierBytes TierBytesOf(const Trace& trace, const Machine& machine, const MovementDecision& decision);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_TIER_BYTES_H_
