// What this process used so far, as the kernel counts it. Stateless, thread-safe.
#ifndef GANTRY_BENCHES_SUITE_PROCESS_USAGE_H_
#define GANTRY_BENCHES_SUITE_PROCESS_USAGE_H_

#include "absl/status/statusor.h"
#include "base/bytes.h"

namespace gantry {

// Of all threads, the kernel's workers for io_uring among them; user and system time.
double ProcessCpuSeconds();

// Memory that the process holds for itself: present anonymous pages and shared ones, not files.
// Errors: kUnavailable where /proc does not tell.
absl::StatusOr<Bytes> ProcessPrivateBytes();

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_PROCESS_USAGE_H_
