// Communicators whose ranks are threads of this process and whose memory is the host's. The oracle
// for every other backend, and the way to run many ranks in tests.
//
// Reductions add in the order of ranks, in f32 with one rounding at the end, so that results do not
// depend on timing. Where no rank can go on (each waits for another, or for one that left), all get
// an error that lists what each waits for: nothing hangs that could be known to hang.
#ifndef GANTRY_PARALLEL_COMM_IN_PROCESS_H_
#define GANTRY_PARALLEL_COMM_IN_PROCESS_H_

#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace gantry {

// One communicator for each rank, in their order; each is used by one thread, and destroyed when
// that rank leaves. REQUIRES: size >= 1.
std::vector<std::unique_ptr<Communicator>> InProcessRanks(int size, std::string name = "world");

}  // namespace gantry

#endif  // GANTRY_PARALLEL_COMM_IN_PROCESS_H_
