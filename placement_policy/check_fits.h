// Whether a trace can run on a machine at all: what no plan could make up for.
#ifndef GANTRY_PLACEMENT_POLICY_CHECK_FITS_H_
#define GANTRY_PLACEMENT_POLICY_CHECK_FITS_H_

#include "absl/status/status.h"
#include "placement_policy/machine.h"
#include "placement_policy/trace.h"

namespace gantry {

// Operators need their blocks and the activations on the device at once; an update needs its
// blocks on the device or on the host; without a file tier everything that lasts from one step to
// the next must fit into device and host together. OK does not promise that a plan is found.
//
// Errors: kInvalidArgument when the two count in slots of different sizes; kResourceExhausted with
// the first moment that needs too much, what it needs and what there is.
// REQUIRES: both are valid.
absl::Status CheckFits(const Trace& trace, const Machine& machine);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_CHECK_FITS_H_
