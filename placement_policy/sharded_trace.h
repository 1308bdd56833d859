// What remains of a training step on one of several data-parallel ranks that share chunks among
// them (ZeRO). Chunk c belongs to rank c mod ranks; a rank updates its own chunks only.
//
//   kStates      Another rank's chunk has no states and no update here. Its parameter arrives
//                before its first use of the step and leaves after its last; its gradient leaves,
//                reduced into the owner's, after its last contribution of the step.
//   kGradients   The gradient leaves after each micro-batch, and begins empty in the next.
//   kParameters  The parameter leaves after each pass over a layer, too, and arrives again.
//
// Arrivals are moments "all-gather" that create the parameter, departures moments "reduce-scatter"
// that consume the gradient, or the access kConsume of a parameter's last use. They take no time:
// the network is no lane of a Machine, so what it costs must be added by whoever knows it. A block
// that the next pass over the same or a neighbouring layer uses again stays, so recomputation,
// backward pass and further micro-batches of a layer share one arrival.
//
// Between steps a parameter of another rank is nowhere on this one: it would be overwritten before
// its next use. What is left per rank between steps is its chunks' parameters and states.
#ifndef GANTRY_PLACEMENT_POLICY_SHARDED_TRACE_H_
#define GANTRY_PLACEMENT_POLICY_SHARDED_TRACE_H_

#include <cstdint>
#include <ostream>
#include <string_view>

#include "absl/status/statusor.h"
#include "placement_policy/trace.h"

namespace gantry {

// What is divided among the ranks; each level includes those before it. ZeRO stages 1, 2 and 3.
enum class Sharding : uint8_t { kStates, kGradients, kParameters };
std::string_view Name(Sharding sharding);  // "states", "gradients", "parameters"
inline std::ostream& operator<<(std::ostream& out, Sharding sharding) {
  return out << Name(sharding);
}

struct ShardOptions {
  Sharding sharding = Sharding::kStates;
  int64_t ranks = 1;  // 1: the trace as it is
  int64_t rank = 0;
};
inline constexpr int64_t kShardRanksMax = 65536;

// A pure function. Block numbers stay; blocks that the rank does not have get 0 slots. `trace` is a
// step of one device: with chunks, parameters that are only read before the updates, and gradients
// that are created and written before the updates consume them.
// Errors: kInvalidArgument naming the option, its value and what is allowed, or what of the trace
// is otherwise.
absl::StatusOr<Trace> ShardTrace(const Trace& trace, const ShardOptions& options);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_SHARDED_TRACE_H_
