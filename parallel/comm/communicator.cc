#include "parallel/comm/communicator.h"

#include <vector>

#include "base/check.h"

namespace gantry {

std::string_view Name(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kMax:
      return "max";
    case Reduction::kMin:
      return "min";
  }
  return "unknown";
}

absl::Status Communicator::AllToAll(const CollectiveBuffers& buffers) {
  GANTRY_CHECK(buffers.count >= 0) << buffers.count;
  const int64_t part = buffers.count * SizeOf(buffers.dtype);
  std::vector<OutgoingMessage> outgoing;
  std::vector<IncomingMessage> incoming;
  for (int peer = 0; peer < size(); ++peer) {
    const int64_t offset = peer * part;
    outgoing.push_back({.peer = peer, .data = buffers.input + offset, .count = buffers.count});
    incoming.push_back({.peer = peer, .data = buffers.output + offset, .count = buffers.count});
  }
  return Exchange(outgoing, incoming, buffers.dtype);
}

absl::Status Communicator::Send(const OutgoingMessage& message, DType dtype) {
  return Exchange({&message, 1}, {}, dtype);
}

absl::Status Communicator::Receive(const IncomingMessage& message, DType dtype) {
  return Exchange({}, {&message, 1}, dtype);
}

}  // namespace gantry
