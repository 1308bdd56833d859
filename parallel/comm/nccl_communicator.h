// Ranks with a GPU each, over NCCL. Operations are enqueued on one stream; memory is that device's.
// 16-bit sums are made in NCCL's order and precision.
//
// NCCL's calls never block here: whoever waits polls, so that a peer that does not come, or an
// error of the network, ends the wait with a message that names the operation, and the group is
// aborted.
#ifndef GANTRY_PARALLEL_COMM_NCCL_COMMUNICATOR_H_
#define GANTRY_PARALLEL_COMM_NCCL_COMMUNICATOR_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "device/cuda/stream.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/nccl_calls.h"

namespace gantry {

struct NcclOptions {
  // All outlive the communicator and those split from it.
  NcclCalls* calls = nullptr;
  Clock* clock = nullptr;
  CudaStream stream = nullptr;
  // Whether everything on the stream is done, without blocking.
  std::function<absl::StatusOr<bool>()> stream_done;
  std::byte* scratch = nullptr;           // 4 bytes of device memory, for barriers
  Nanoseconds timeout = 600'000'000'000;  // of each wait, of starting too
  Nanoseconds poll_every = 200'000;       // while waiting
};

// This rank's end of a group as large as `bootstrap`'s, with its ranks and name. All ranks of
// `bootstrap`, which moves host memory, call it; it is used here only. The calling thread's device
// is the communicator's, here and in all later calls. Errors: kUnavailable with NCCL's code and
// text; kDeadlineExceeded; those of `bootstrap`.
absl::StatusOr<std::unique_ptr<Communicator>> CreateNcclCommunicator(Communicator& bootstrap,
                                                                     const NcclOptions& options);

}  // namespace gantry

#endif  // GANTRY_PARALLEL_COMM_NCCL_COMMUNICATOR_H_
