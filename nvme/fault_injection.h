// Faults on demand, for tests of whatever does I/O.
//
//   FaultyIoBackend backend([&](IoSink* sink) { return CreateIoBackend({.sink = sink, ...}); },
//                           &engine);
//   GANTRY_CHECK_OK(backend.status());
//   backend.FailRequest(3, FaultyIoBackend::When::kCompletion, DataLoss("injected EIO"));
#ifndef GANTRY_NVME_FAULT_INJECTION_H_
#define GANTRY_NVME_FAULT_INJECTION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "nvme/file_calls.h"
#include "nvme/io_backend.h"

namespace gantry {

// Decorates a backend: chosen requests (numbered from 0 by Submit) are refused or fail.
// Thread-safe.
class FaultyIoBackend final : public IoBackend, private IoSink {
 public:
  enum class When {
    kSubmit,      // Submit returns the status, the request is not taken
    kCompletion,  // nothing is transferred, the completion carries the status; a read's buffer is
                  // overwritten with kPoison so that nobody can use it by mistake
  };
  static constexpr std::byte kPoison{0xA5};
  using Factory = std::function<absl::StatusOr<std::unique_ptr<IoBackend>>(IoSink* sink)>;

  // Makes the decorated backend with this object as its sink; `sink` gets the completions.
  FaultyIoBackend(const Factory& factory, IoSink* sink);
  absl::Status status() const { return status_; }  // of the factory; nothing works unless OK

  // REQUIRES: request `index` was not submitted yet; `status` is an error.
  void FailRequest(int64_t index, When when, absl::Status status) GANTRY_EXCLUDES(mutex_);
  int64_t submitted() const GANTRY_EXCLUDES(mutex_);

  absl::Status Submit(const IoRequest& request) override;
  std::string_view name() const override { return inner_->name(); }
  IoCounters counters() const override { return inner_->counters(); }

 private:
  struct Fault {
    When when;
    absl::Status status;
  };
  struct InFlight {
    IoRequest request;
    absl::Status status;  // OK: no fault
  };
  void OnIoComplete(uint64_t tag, absl::Status status) override;

  IoSink* const sink_;
  absl::Status status_;
  mutable Mutex mutex_;
  int64_t submitted_ GANTRY_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, Fault> faults_ GANTRY_GUARDED_BY(mutex_);         // by request number
  std::map<uint64_t, InFlight> in_flight_ GANTRY_GUARDED_BY(mutex_);  // by request number
  std::unique_ptr<IoBackend> inner_;  // last: its destructor still calls back
};

// Decorates system calls: chosen ones (numbered from 0) return what the test says. Thread-safe.
class FaultyTransferCalls final : public TransferCalls {
 public:
  explicit FaultyTransferCalls(TransferCalls* inner) : inner_(inner) {}

  // Call `index` moves at most `bytes` (0: nothing at all, and 0 is returned).
  void ShortenCall(int64_t index, int64_t bytes) GANTRY_EXCLUDES(mutex_);
  // Calls `first` .. `first + count - 1` do nothing and return -error_number.
  struct Failure {
    int64_t first;
    int64_t count;
    int error_number;
  };
  void FailCalls(const Failure& failure) GANTRY_EXCLUDES(mutex_);
  int64_t calls() const GANTRY_EXCLUDES(mutex_);

  int64_t Transfer(const IoRequest& piece) override;

 private:
  TransferCalls* const inner_;
  mutable Mutex mutex_;
  int64_t calls_ GANTRY_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, int64_t> bytes_max_ GANTRY_GUARDED_BY(mutex_);  // by call
  std::map<int64_t, Failure> failures_ GANTRY_GUARDED_BY(mutex_);   // by first call
};

}  // namespace gantry

#endif  // GANTRY_NVME_FAULT_INJECTION_H_
