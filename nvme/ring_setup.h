// Makes an io_uring with the best flags that the kernel has, and registers files and memory with
// it. Only io_ring.cc uses it: liburing appears in no other header.
#ifndef GANTRY_NVME_RING_SETUP_H_
#define GANTRY_NVME_RING_SETUP_H_

#include <liburing.h>

#include <span>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "nvme/fixed_memory.h"
#include "nvme/io_backend.h"

namespace gantry {

struct RingSetup {
  int entries;
  std::span<const int> files;
  const FixedMemory* memory;
  Logger* logger;  // not null where something is to be registered
};

// Sets up `ring` for the calling thread, the only one that may use it then; io_uring_queue_exit
// releases it. A refused registration is one warning per logger and errno, no error.
// Errors: kUnavailable when the system refuses io_uring (names the call and errno).
absl::StatusOr<IoSetup> SetUpRing(const RingSetup& setup, io_uring& ring);

}  // namespace gantry

#endif  // GANTRY_NVME_RING_SETUP_H_
