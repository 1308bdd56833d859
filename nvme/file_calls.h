// The system calls of the thread backend behind an interface, so that tests can make the n-th one
// short or failing (nvme/fault_injection.h).
#ifndef GANTRY_NVME_FILE_CALLS_H_
#define GANTRY_NVME_FILE_CALLS_H_

#include <cstdint>

#include "nvme/io_backend.h"

namespace gantry {

// Thread-safe.
class TransferCalls {
 public:
  virtual ~TransferCalls() = default;
  // One system call for `piece`, blocking. Returns the bytes moved (maybe fewer than asked for; 0
  // for a sync) or a negative errno.
  virtual int64_t Transfer(const IoRequest& piece) = 0;
};

// pread, pwrite and fdatasync. Stateless.
class PosixTransferCalls final : public TransferCalls {
 public:
  int64_t Transfer(const IoRequest& piece) override;
};

}  // namespace gantry

#endif  // GANTRY_NVME_FILE_CALLS_H_
