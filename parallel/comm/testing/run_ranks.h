// Runs a function on every rank of an in-process world, each on a thread of its own.
#ifndef GANTRY_PARALLEL_COMM_TESTING_RUN_RANKS_H_
#define GANTRY_PARALLEL_COMM_TESTING_RUN_RANKS_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "parallel/comm/communicator.h"

namespace gantry {

// What each rank returned, in the order of ranks. A rank leaves when its function is done.
std::vector<absl::Status> RunRanks(int size,
                                   const std::function<absl::Status(Communicator&)>& body);

}  // namespace gantry

#endif  // GANTRY_PARALLEL_COMM_TESTING_RUN_RANKS_H_
