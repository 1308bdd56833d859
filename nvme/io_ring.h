// IoBackend by io_uring. One thread owns the ring (SINGLE_ISSUER with DEFER_TASKRUN where the
// kernel has them); Submit leaves the request in a queue and, where that thread waits and has room,
// wakes it through an eventfd that it reads on the ring, so that one wait covers new requests and
// completions. The ring stays full across the borders of requests. Whatever the thread computes
// (checksums), it computes after the drive got its next pieces.
//
// Files and memory may be registered with the kernel, which then need not look them up for every
// piece: a piece whose buffer lies in one registered region (regions above 1 GiB count as several)
// uses it, any other goes the plain way. Registered memory is pinned as it is mapped at Create.
// Where a page is moved away later (mremap), the kernel still means the old one: never pass such
// addresses. Where registration is refused (RLIMIT_MEMLOCK, memory of files) everything goes the
// plain way, after one line in the log.
//
// Thread-safe. The sink is called from the ring's thread only.
#ifndef GANTRY_NVME_IO_RING_H_
#define GANTRY_NVME_IO_RING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/log.h"
#include "nvme/io_backend.h"

namespace gantry {

class IoRing final : public IoBackend {
 public:
  struct Options {
    IoSink* sink;                                             // outlives the backend
    int queue_depth;                                          // 1..4096: pieces in flight
    std::span<const int> fixed_files = {};                    // stay open as long as the backend
    std::span<const std::span<std::byte>> fixed_memory = {};  // mapped as long; no overlap
    Logger* logger = nullptr;  // needed during Create, where something is to be registered
  };

  // Errors: kInvalidArgument for a number out of range, kUnavailable when the system refuses
  // io_uring (names the call and errno) or another thread.
  static absl::StatusOr<std::unique_ptr<IoRing>> Create(const Options& options);
  ~IoRing() override;

  void Submit(const IoRequest& request) override;
  void Cancel(uint64_t tag) override;
  void Promote(uint64_t tag, IoPriority priority) override;
  std::string_view name() const override { return "io_uring"; }
  IoCounters counters() const override;
  IoSetup setup() const override;  // flags as "SINGLE_ISSUER|DEFER_TASKRUN|SUBMIT_ALL"

 private:
  class Loop;  // the thread and its ring; liburing stays in the source file
  explicit IoRing(std::unique_ptr<Loop> loop);

  std::unique_ptr<Loop> loop_;
};

}  // namespace gantry

#endif  // GANTRY_NVME_IO_RING_H_
