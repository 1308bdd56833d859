// Counts what a hot path must not do: allocations and system calls.
//
// One at a time in a process. For tests; a binary that links this counts in its operator new.
#ifndef GANTRY_BASE_TESTING_CALL_COUNTS_H_
#define GANTRY_BASE_TESTING_CALL_COUNTS_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"

namespace gantry {

// Calls of operator new by this thread while `body` runs. Errors: kUnimplemented with a sanitizer,
// which has an operator new of its own.
absl::StatusOr<int64_t> CountAllocations(const std::function<void()>& body);

// Runs `body` on a thread of its own whose system calls a seccomp filter refuses (they return
// ENOSYS), and returns how many it tried. Calls without the kernel's help, such as reading the
// clock, are none. Blocks until `body` has returned.
// Errors: kUnimplemented where there is no such filter, or a sanitizer makes calls of its own.
absl::StatusOr<int64_t> CountSystemCalls(const std::function<void()>& body);

}  // namespace gantry

#endif  // GANTRY_BASE_TESTING_CALL_COUNTS_H_
