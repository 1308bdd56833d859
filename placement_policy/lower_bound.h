// A time that no schedule of a movement problem can stay below, on average over steps, with any
// order of transfers, look-ahead and choice of what stays. Placement and norm mode are those of the
// problem. Pure functions; integers, rounded down.
//
// Why each part holds. A schedule runs forever; a lane that needs w per step on average cannot do
// with less than w per step, and moments compute one at a time:
//
//   - `compute`: the sum over the moments.
//   - `host_to_device`: a version made by a host update is fetched once. Any other interval between
//     two uses is kept or its end is fetched; how many can be kept under the varying capacity,
//     beside the blocks in use and gradients about to be complete, is interval packing
//     (interval_sweep.h). Blocks of several slots count as that many units, a relaxation.
//   - `device_to_host`: each host update's gradient; and a block that a moment wrote, from that
//     write to the next, is kept throughout or written back: interval packing again.
//   - `host_update`.
//   - `file_read` and `file_write`: states of host updates, and blocks in files as on the lanes
//     between host and device, since each passes the file before it goes up and after it went down.
//   - lanes that share one resource: the sum.
//
// `path` is a longest path over starts of moments in one period, from an anchor to itself one step
// later; start(t) is at least L(t) after the anchor's start. L(t + 1) >= L(t) + compute(t), and:
//
//   - Fetch window i < j: when moment i ends, the device holds its blocks and, in the room beside
//     them, anything, transfers under way included. Whatever that is, the furthest-end rule from i
//     on drops the least, so that many units, and every version whose update comes after moment i,
//     are fetched between end(i) and start(j). A use at moment j itself needs its block, but an
//     interval that ends at j occupies nothing at j beside it.
//   - Write window i < j: of the blocks changed in i..j-1 whose content still counts, and of the
//     gradients complete since, at start(j) no more than the room beside j's blocks is still there;
//     the others went down after end(i). With j = i + 1, the last fetch comes after these.
//   - Release window across the step border: the q updates with complete >= e whose parameter is
//     used by moment f of the next step are a flow shop of three machines (down, update, up) that
//     starts at end(e). On each machine: least time before it, its sum, least time after it. With
//     states in files, all but `host_buffers` of them are read, and as many written, before.
//   - Norm: known after norm_moment, and after the lane down has carried all gradients that are
//     complete at or after e, for every e. Updates that wait for it, and moments that need it, come
//     later; of the updates whose parameter is used by f, update and up are a shop of two machines.
//
// Edges end where they begin or later and describe disjoint times, so they add. The period is cut
// at several anchors (an edge cannot cross the cut); each cut alone is a bound, the largest counts.
#ifndef GANTRY_PLACEMENT_POLICY_LOWER_BOUND_H_
#define GANTRY_PLACEMENT_POLICY_LOWER_BOUND_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "placement_policy/movement_problem.h"

namespace gantry {

struct LowerBoundOptions {
  // Fetch windows start at the anchors, at every start_stride-th moment, and at the one with the
  // least capacity of each stride. 1: everywhere, which takes O(moments x uses).
  int64_t start_stride = 32;
  // Moments to cut at, beside the step's start, the first moment that creates a host update's
  // gradient, and the one after the last that completes one.
  std::vector<int32_t> anchors = {};
};

struct LowerBound {
  enum class Limit : uint8_t {
    kCompute,
    kHostToDevice,
    kDeviceToHost,
    kLink,  // both directions of the one link
    kHostUpdate,
    kFileRead,
    kFileWrite,
    kFiles,  // both directions of the one device
    kPath,
  };
  enum class Edge : uint8_t { kFetch, kWrite, kRelease, kNorm };
  struct Window {
    Edge edge = Edge::kFetch;
    int32_t begin = 0;      // moment
    int32_t end = 0;        // moment at whose start it ends; beyond the last: of the next step
    Nanoseconds stall = 0;  // beyond the computing in it
  };

  Nanoseconds total = 0;  // the largest of the following
  Limit limit = Limit::kCompute;
  // That come up in a step at least, on average, rounded down: what Belady's MIN loads, where
  // blocks have one slot each.
  int64_t slots_fetched = 0;
  Nanoseconds compute = 0;
  Nanoseconds host_to_device = 0;
  Nanoseconds device_to_host = 0;
  Nanoseconds link = 0;  // 0 unless the directions share it
  Nanoseconds host_update = 0;
  Nanoseconds file_read = 0;
  Nanoseconds file_write = 0;
  Nanoseconds files = 0;  // 0 unless reads and writes share the device
  Nanoseconds path = 0;   // compute + stalls of the windows below

  Nanoseconds fetch_stall = 0;  // parts of path - compute
  Nanoseconds write_stall = 0;
  Nanoseconds release_stall = 0;  // of kRelease and kNorm
  std::vector<Window> windows;    // on the longest path, in order from its anchor
};
std::string_view Name(LowerBound::Limit limit);

// A few milliseconds for 2,500 moments with 7,400 uses.
// REQUIRES: problem.Validate() is OK; start_stride >= 1; anchors are moments.
LowerBound ComputeLowerBound(const MovementProblem& problem, const LowerBoundOptions& options);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_LOWER_BOUND_H_
