#include "nvme/io_backend.h"

#include <bit>
#include <limits>

#include "base/check.h"

namespace gantry {

std::string_view ToString(IoRequest::Kind kind) {
  switch (kind) {
    case IoRequest::Kind::kRead:
      return "read";
    case IoRequest::Kind::kWrite:
      return "write";
    case IoRequest::Kind::kSync:
      return "sync";
  }
  GANTRY_CHECK(false) << "kind " << static_cast<int>(kind);
}

IoCounters& IoCounters::operator+=(const IoCounters& other) {
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  requests += other.requests;
  failures += other.failures;
  pieces += other.pieces;
  resubmits += other.resubmits;
  retries += other.retries;
  fixed_pieces += other.fixed_pieces;
  system_calls += other.system_calls;
  return *this;
}

void CheckRequest(const IoRequest& request) {
  GANTRY_CHECK_GE(request.fd, 0);
  GANTRY_CHECK(static_cast<int>(request.priority) < kIoPriorityCount)
      << "priority " << static_cast<int>(request.priority);
  if (request.kind == IoRequest::Kind::kSync) return;
  const auto size = static_cast<int64_t>(request.buffer.size());
  GANTRY_CHECK_GE(request.offset, 0);
  GANTRY_CHECK_LE(request.offset, std::numeric_limits<int64_t>::max() - size);
  GANTRY_CHECK(request.alignment > 0 && request.alignment <= kPieceBytes &&
               std::has_single_bit(static_cast<uint64_t>(request.alignment)))
      << "alignment " << request.alignment;
  GANTRY_CHECK_EQ(request.offset % request.alignment, 0);
  GANTRY_CHECK_EQ(size % request.alignment, 0);
  const auto hashes = static_cast<int64_t>(request.piece_hashes.size());
  GANTRY_CHECK(hashes == 0 || hashes == (size + kPieceBytes - 1) / kPieceBytes)
      << hashes << " piece hashes for " << size << " bytes";
}

}  // namespace gantry
