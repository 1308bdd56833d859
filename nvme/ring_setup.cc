#include "nvme/ring_setup.h"

#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/strings.h"
#include "nvme/describe.h"

namespace gantry {
namespace {

struct SetupFlags {
  unsigned flags;
  const char* name;
};
// Best first. A kernel that lacks a flag answers EINVAL, so the sets are found by trying.
constexpr SetupFlags kSetups[] = {
    {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL,
     "SINGLE_ISSUER|DEFER_TASKRUN|SUBMIT_ALL"},  // 6.1
    {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL,
     "SINGLE_ISSUER|COOP_TASKRUN|SUBMIT_ALL"},                                         // 6.0
    {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL, "COOP_TASKRUN|SUBMIT_ALL"},  // 5.19
    {IORING_SETUP_SUBMIT_ALL, "SUBMIT_ALL"},                                           // 5.18
    {0, "none"},
};

void WarnOfRefusal(std::string_view what, int error_number, Logger& logger) {
  logger.WarnOnce(StrCat("io_uring refuses to register ", what, " (", DescribeErrno(error_number),
                         error_number == ENOMEM ? ", see ulimit -l" : "",
                         "); file I/O goes without, for a little more processor time"));
}

bool RegisterFiles(const RingSetup& setup, io_uring& ring) {
  if (setup.files.empty()) return false;
  const int result =
      io_uring_register_files(&ring, setup.files.data(), static_cast<unsigned>(setup.files.size()));
  if (result != 0) WarnOfRefusal("files", -result, *setup.logger);
  return result == 0;
}

bool RegisterMemory(const RingSetup& setup, io_uring& ring) {
  std::vector<iovec> slices;
  for (const std::span<std::byte> slice : setup.memory->slices()) {
    slices.push_back({.iov_base = slice.data(), .iov_len = slice.size()});
  }
  if (slices.empty()) return false;
  const int result =
      io_uring_register_buffers(&ring, slices.data(), static_cast<unsigned>(slices.size()));
  if (result != 0) WarnOfRefusal("memory", -result, *setup.logger);
  return result == 0;
}

}  // namespace

absl::StatusOr<IoSetup> SetUpRing(const RingSetup& setup, io_uring& ring) {
  GANTRY_CHECK(setup.entries > 0 && setup.memory != nullptr);
  const auto entries = static_cast<unsigned>(setup.entries);
  IoSetup result;
  int error = -EINVAL;
  for (const SetupFlags& flags : kSetups) {
    result.flags = flags.name;
    error = io_uring_queue_init(entries, &ring, flags.flags);
    if (error != -EINVAL) break;
  }
  if (error != 0) {
    return Unavailable("io_uring_setup with ", entries, " entries: ", DescribeErrno(-error));
  }
  result.fixed_files = RegisterFiles(setup, ring);
  result.fixed_memory = RegisterMemory(setup, ring);
  return result;
}

}  // namespace gantry
