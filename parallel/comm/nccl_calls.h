// The calls of NCCL that we make, one to one (docs.nvidia.com/deeplearning/nccl, API). Behind an
// interface so that the communicator above it is tested without a GPU; NCCL's types stay out of
// headers. All take and return NCCL's own codes.
#ifndef GANTRY_PARALLEL_COMM_NCCL_CALLS_H_
#define GANTRY_PARALLEL_COMM_NCCL_CALLS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "device/cuda/stream.h"
#include "parallel/comm/communicator.h"

namespace gantry {

// A ncclResult_t. kInProgress: of calls that do not block; see NcclCalls::AsyncError.
enum class NcclResult : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

using NcclHandle = void*;  // a ncclComm_t
using NcclUniqueId = std::array<char, 128>;

struct NcclTarget {
  NcclHandle handle = nullptr;
  CudaStream stream = nullptr;
};

// Thread-safe for different handles.
class NcclCalls {
 public:
  virtual ~NcclCalls() = default;
  virtual NcclResult GetVersion(int* version) = 0;  // 22809 is 2.28.9
  virtual NcclResult GetUniqueId(NcclUniqueId* id) = 0;
  // Does not block (config.blocking = 0). On the calling thread's current device.
  virtual NcclResult CommInitRank(NcclHandle* handle, int size, const NcclUniqueId& id,
                                  int rank) = 0;
  // A negative color leaves *made null.
  virtual NcclResult CommSplit(NcclHandle handle, int color, int key, NcclHandle* made) = 0;
  // ncclCommUserRank and ncclCommCount.
  virtual NcclResult CommPlace(NcclHandle handle, int* rank, int* size) = 0;
  virtual NcclResult CommDestroy(NcclHandle handle) = 0;
  virtual NcclResult CommAbort(NcclHandle handle) = 0;
  // *result: what became of the calls before.
  virtual NcclResult AsyncError(NcclHandle handle, NcclResult* result) = 0;

  virtual NcclResult AllReduce(const CollectiveBuffers& buffers, Reduction reduction,
                               const NcclTarget& target) = 0;
  virtual NcclResult ReduceScatter(const CollectiveBuffers& buffers, Reduction reduction,
                                   const NcclTarget& target) = 0;
  virtual NcclResult AllGather(const CollectiveBuffers& buffers, const NcclTarget& target) = 0;
  virtual NcclResult Broadcast(const CollectiveBuffers& buffers, int root,
                               const NcclTarget& target) = 0;
  virtual NcclResult Send(const OutgoingMessage& message, DType dtype,
                          const NcclTarget& target) = 0;
  virtual NcclResult Receive(const IncomingMessage& message, DType dtype,
                             const NcclTarget& target) = 0;
  virtual NcclResult GroupStart() = 0;
  virtual NcclResult GroupEnd() = 0;

  virtual std::string ErrorString(NcclResult result) = 0;
  // What NCCL says beyond the code; may be empty.
  virtual std::string LastError(NcclHandle handle) = 0;
};

}  // namespace gantry

#endif  // GANTRY_PARALLEL_COMM_NCCL_CALLS_H_
