// IoBackend by io_uring. One thread owns the ring (SINGLE_ISSUER with DEFER_TASKRUN where the
// kernel has them); Submit leaves the request in a queue and wakes that thread through an eventfd
// that it reads on the ring, so that one wait covers new requests and completions.
//
// Thread-safe. The sink is called from the ring's thread only.
#ifndef GANTRY_NVME_IO_RING_H_
#define GANTRY_NVME_IO_RING_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nvme/io_backend.h"

namespace gantry {

class IoRing final : public IoBackend {
 public:
  struct Options {
    IoSink* sink;     // outlives the backend
    int queue_depth;  // 1..4096: pieces in flight
    int pending_max;  // requests accepted and not completed, at least 1
  };

  // Errors: kInvalidArgument for a number out of range, kUnavailable when the system refuses
  // io_uring (names the call and errno) or another thread.
  static absl::StatusOr<std::unique_ptr<IoRing>> Create(const Options& options);
  ~IoRing() override;

  absl::Status Submit(const IoRequest& request) override;
  std::string_view name() const override { return "io_uring"; }
  IoCounters counters() const override;

  // The set-up flags in force, for reports: "SINGLE_ISSUER|DEFER_TASKRUN|SUBMIT_ALL".
  std::string_view flags() const;

 private:
  class Loop;  // the thread and its ring; liburing stays in the source file
  explicit IoRing(std::unique_ptr<Loop> loop);

  std::unique_ptr<Loop> loop_;
};

}  // namespace gantry

#endif  // GANTRY_NVME_IO_RING_H_
