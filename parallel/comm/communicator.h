// What a fixed group of ranks does together. Every rank of a group makes the same calls in the same
// order, with the same counts and types; messages between two ranks pair up in order. A
// communicator is one rank's end.
//
//   GANTRY_RETURN_IF_ERROR(data_parallel->ReduceScatter(
//       {.input = gradients, .output = shard, .count = shard_elements, .dtype = DType::kBF16}));
//
// Where memory is the host's an operation is done when the call returns. Where it is a device's, it
// is enqueued on the communicator's stream: order other work behind that stream, or Synchronize.
//
// Sums of 16-bit elements are made in f32 where the backend can (in_process.h can, and adds in the
// order of ranks, so that it is the oracle for the others).
//
// After any error a group cannot be used further: its peers may have done the operation or not.
// Thread-compatible, except Abort. All buffers are the caller's and stay valid until the operation
// is done.
#ifndef GANTRY_PARALLEL_COMM_COMMUNICATOR_H_
#define GANTRY_PARALLEL_COMM_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"

namespace gantry {

enum class Reduction : uint8_t { kSum, kMax, kMin };
std::string_view Name(Reduction reduction);  // "sum", "max", "min"
inline std::ostream& operator<<(std::ostream& out, Reduction reduction) {
  return out << Name(reduction);
}

// Of AllReduce `count` elements go in and come out; of ReduceScatter size() * count go in and rank
// r's part [r * count, (r + 1) * count) comes out; of AllGather count go in and size() * count come
// out, in the order of ranks. `output` may be `input` (AllReduce), or this rank's part of it
// (ReduceScatter; AllGather the other way round); otherwise they do not overlap. Counts may be 0.
struct CollectiveBuffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  int64_t count = 0;
  DType dtype = DType::kF32;
};

struct OutgoingMessage {
  int peer = 0;
  const std::byte* data = nullptr;
  int64_t count = 0;  // may be 0
};
struct IncomingMessage {
  int peer = 0;
  std::byte* data = nullptr;
  int64_t count = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Of the group, for messages: "world", "data".
  virtual const std::string& name() const = 0;

  // Errors of all operations: kInvalidArgument where ranks do not agree or a peer does not exist,
  // kUnavailable where a peer left or no rank can go on, kDeadlineExceeded where one did not come,
  // kAborted after Abort. Each names the operation, its number in the group, and the ranks.
  virtual absl::Status AllReduce(const CollectiveBuffers& buffers, Reduction reduction) = 0;
  virtual absl::Status ReduceScatter(const CollectiveBuffers& buffers, Reduction reduction) = 0;
  virtual absl::Status AllGather(const CollectiveBuffers& buffers) = 0;
  // From `root`'s memory to everyone's. REQUIRES: 0 <= root < size().
  virtual absl::Status Broadcast(std::byte* data, int64_t count, DType dtype, int root) = 0;
  // Sends and receives all of these at once, so that no order of them can block.
  virtual absl::Status Exchange(std::span<const OutgoingMessage> outgoing,
                                std::span<const IncomingMessage> incoming, DType dtype) = 0;
  // Returns on the host when every rank has called it.
  virtual absl::Status Barrier() = 0;

  // Groups of the ranks with the same `color`, ordered by `key`, then by rank; null for those with
  // a negative color. `name` is the new group's. All ranks call it. The parent outlives the child.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                              std::string_view name) = 0;

  // Waits until all operations are done, and returns their first error.
  virtual absl::Status Synchronize() = 0;
  // Ends waiting operations of the group, on all ranks that it can reach, with kAborted. From any
  // thread.
  virtual void Abort(std::string_view reason) = 0;

  // ---- Of the above. ----
  // Part p of `input`, `count` elements, goes to rank p; `output` gets size() parts in the order of
  // ranks. They do not overlap.
  absl::Status AllToAll(const CollectiveBuffers& buffers);
  absl::Status Send(const OutgoingMessage& message, DType dtype);
  absl::Status Receive(const IncomingMessage& message, DType dtype);
};

}  // namespace gantry

#endif  // GANTRY_PARALLEL_COMM_COMMUNICATOR_H_
