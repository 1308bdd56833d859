#include "nvme/file_calls.h"

#include <unistd.h>

#include <cerrno>

#include "base/check.h"

namespace gantry {

int64_t PosixTransferCalls::Transfer(const IoRequest& piece) {
  int64_t result = 0;
  switch (piece.kind) {
    case IoRequest::Kind::kRead:
      result = pread(piece.fd, piece.buffer.data(), piece.buffer.size(), piece.offset);
      break;
    case IoRequest::Kind::kWrite:
      result = pwrite(piece.fd, piece.buffer.data(), piece.buffer.size(), piece.offset);
      break;
    case IoRequest::Kind::kSync:
      result = fdatasync(piece.fd);
      break;
  }
  GANTRY_CHECK_GE(result, -1);
  return result >= 0 ? result : -int64_t{errno};
}

}  // namespace gantry
