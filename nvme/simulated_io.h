// An I/O backend without threads for simulation: a drive on an EventLoop. A piece takes the drive's
// latency, which varies by a draw of the loop, and its bytes over the bandwidth, which all pieces
// share; up to queue_depth pieces are under way, and they complete in any order. The bytes move
// when the piece completes, through FileCalls and so to and from real files: whoever uses a buffer
// early or gives it up too soon is found out. Faults come from the FaultPlan and its file calls; a
// drive that vanishes does so after up to 64 requests.
//
//   GANTRY_ASSIGN_OR_RETURN(auto io, SimulatedIo::Create({.clock = &clock, .loop = &loop,
//       .faults = &faults, .latency = 80'000, .bandwidth_bytes_per_second = 2'000'000'000,
//       .queue_depth = 4, .sink = sink}));
//
// One thread.
#ifndef GANTRY_NVME_SIMULATED_IO_H_
#define GANTRY_NVME_SIMULATED_IO_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/event_loop.h"
#include "base/testing/fault_plan.h"
#include "nvme/io_backend.h"
#include "nvme/request_progress.h"
#include "nvme/request_queue.h"

namespace gantry {

class SimulatedIo final : public IoBackend {
 public:
  struct Options {
    // All outlive the backend.
    const VirtualClock* clock;
    EventLoop* loop;    // on that clock
    FaultPlan* faults;  // its kRequest faults, and its files() for the transfers
    IoSink* sink;
    Nanoseconds latency = 0;                 // of a piece: from half of this to one and a half
    int64_t bandwidth_bytes_per_second = 0;  // 0: only the latency counts
    int queue_depth = 16;                    // pieces under way
  };
  // Errors: kInvalidArgument for a number out of range; what a kBackend fault says.
  static absl::StatusOr<std::unique_ptr<SimulatedIo>> Create(const Options& options);
  // Runs the loop until all requests have completed.
  ~SimulatedIo() override;

  void Submit(const IoRequest& request) override;
  void Cancel(uint64_t tag) override;
  void Promote(uint64_t tag, IoPriority priority) override;
  std::string_view name() const override { return "simulated"; }
  IoCounters counters() const override { return counters_; }

 private:
  SimulatedIo(const Options& options, const FaultPlan::Verdict& verdict);
  // Puts as many pieces under way as there is room for.
  void StartPieces();
  void ScheduleTransfer(RequestQueue::Piece piece, Nanoseconds delay);
  void Transfer(RequestQueue::Piece piece);
  void FinishPiece(const RequestQueue::Piece& piece, absl::Status status);
  void ScheduleCompletions();
  int64_t Call(const IoRequest& piece);

  const Options options_;
  const FaultPlan::Verdict own_;  // of the whole drive
  int64_t requests_left_;         // before a drive that vanishes is gone
  RequestQueue queue_;
  // Of requests that the plan struck, until they complete.
  absl::flat_hash_map<uint64_t, FaultPlan::Verdict> struck_;
  int under_way_ = 0;              // pieces
  int64_t completion_events_ = 0;  // in the loop
  Nanoseconds free_at_ = 0;        // when the drive has moved the bytes of what was started
  IoCounters counters_;
};

}  // namespace gantry

#endif  // GANTRY_NVME_SIMULATED_IO_H_
