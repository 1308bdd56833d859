// In which order saved activations give up their place on the device.
#ifndef GANTRY_PLACEMENT_POLICY_ACTIVATION_ORDER_H_
#define GANTRY_PLACEMENT_POLICY_ACTIVATION_ORDER_H_

#include <cstdint>
#include <vector>

#include "placement_policy/trace.h"
#include "placement_policy/training_problem.h"

namespace gantry {

// Indices into trace.activations; those without slots are in neither.
struct ActivationOrder {
  std::vector<int32_t> offload;    // longest time between creation and use first
  std::vector<int32_t> recompute;  // least time per slot and moment that it frees first
};
ActivationOrder OrderActivations(const Trace& trace);

// The first `offloaded` of the one order move out, to the host; of the rest the first `recomputed`
// of the other are computed again. REQUIRES: counts of at most what the orders hold.
std::vector<ActivationPlace> PlaceActivations(const Trace& trace, const ActivationOrder& order,
                                              int64_t offloaded, int64_t recomputed);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_ACTIVATION_ORDER_H_
