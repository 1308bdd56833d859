// Requests that fail on demand, for tests of whatever does I/O. Calls that fail on demand are in
// base/testing/faulty_file_calls.h.
//
//   FaultyIoBackend backend([&](IoSink* sink) { return CreateIoBackend({.sink = sink, ...}); },
//                           &engine);
//   GANTRY_CHECK_OK(backend.status());
//   backend.FailRequest(3, DataLoss("injected EIO"));
#ifndef GANTRY_NVME_FAULT_INJECTION_H_
#define GANTRY_NVME_FAULT_INJECTION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "nvme/io_backend.h"

namespace gantry {

// Decorates a backend: of chosen requests (numbered from 0 by Submit) nothing is transferred, and
// the completion carries an error; a read's buffer is overwritten with kPoison so that nobody can
// use it by mistake. Thread-safe.
class FaultyIoBackend final : public IoBackend, private IoSink {
 public:
  static constexpr std::byte kPoison{0xA5};
  using Factory = std::function<absl::StatusOr<std::unique_ptr<IoBackend>>(IoSink* sink)>;

  // Makes the decorated backend with this object as its sink; `sink` gets the completions.
  FaultyIoBackend(const Factory& factory, IoSink* sink);
  absl::Status status() const { return status_; }  // of the factory; nothing works unless OK

  // REQUIRES: request `index` was not submitted yet; `status` is an error.
  void FailRequest(int64_t index, absl::Status status) GANTRY_EXCLUDES(mutex_);
  int64_t submitted() const GANTRY_EXCLUDES(mutex_);

  void Submit(const IoRequest& request) override;
  void Cancel(uint64_t tag) override;
  void Promote(uint64_t tag, IoPriority priority) override;
  std::string_view name() const override { return inner_->name(); }
  IoCounters counters() const override { return inner_->counters(); }
  IoSetup setup() const override { return inner_->setup(); }

 private:
  struct InFlight {
    IoRequest request;
    absl::Status status;  // OK: no fault
  };
  void OnIoComplete(uint64_t tag, absl::Status status) override;
  std::optional<uint64_t> Forwarded(uint64_t tag) const GANTRY_EXCLUDES(mutex_);

  IoSink* const sink_;
  absl::Status status_;
  mutable Mutex mutex_;
  int64_t submitted_ GANTRY_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, absl::Status> faults_ GANTRY_GUARDED_BY(mutex_);  // by request number
  std::map<uint64_t, InFlight> in_flight_ GANTRY_GUARDED_BY(mutex_);  // by request number
  std::map<uint64_t, uint64_t> numbers_ GANTRY_GUARDED_BY(mutex_);    // of pending ones, by tag
  std::unique_ptr<IoBackend> inner_;  // last: its destructor still calls back
};

}  // namespace gantry

#endif  // GANTRY_NVME_FAULT_INJECTION_H_
