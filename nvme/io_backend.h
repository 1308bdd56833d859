// Asynchronous file reads and writes: requests go in by Submit, completions come out through an
// IoSink on an I/O thread. Two implementations keep this contract: IoRing (io_uring) and IoThreads
// (pread/pwrite); CreateIoBackend in create_io_backend.h chooses.
//
//   struct Waiter : IoSink { void OnIoComplete(uint64_t tag, absl::Status status) override; };
//   backend->Submit({.kind = IoRequest::Kind::kRead, .fd = fd, .offset = 0, .buffer = block,
//                    .alignment = 4096, .tag = 7});
//
// Requests are independent: wait for a completion before submitting what depends on it. Each
// completes exactly once, wholly done (never short) or with an error. Requests are cut into pieces;
// pieces start by priority and then in the order of Submit, so those of a more urgent request
// overtake the pieces of others that have not started. Nothing orders what is under way.
//
// Errors a completion carries, each naming file, offset, length and errno:
//   kResourceExhausted  ENOSPC, EDQUOT, EFBIG: the file system or a limit is full
//   kDataLoss           EIO and the like, or a read past the end of the file
//   kUnavailable        the device is gone (ENODEV, ENXIO), or EAGAIN kept coming
//   kCancelled          by Cancel, before anything of the request started
//   kInternal           any other errno
#ifndef GANTRY_NVME_IO_BACKEND_H_
#define GANTRY_NVME_IO_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace gantry {

// Requests are cut at this size. The block layer splits at about this size anyway
// (max_sectors_kb), and several pieces in flight keep a drive busy with one large block; cutting
// finer costs system calls and gains nothing.
inline constexpr int64_t kPieceBytes = int64_t{1} << 20;

// Most urgent first.
enum class IoPriority : uint8_t { kDemand, kPrefetch, kWriteBack };
inline constexpr int kIoPriorityCount = 3;

struct IoRequest {
  // kSync is fdatasync: it covers writes of this file that completed before the Submit; offset and
  // buffer are not used.
  enum class Kind { kRead, kWrite, kSync };

  Kind kind;
  int fd;                       // stays open until the completion
  int64_t offset;               // bytes from the start of the file
  std::span<std::byte> buffer;  // read into or written from; the caller's until the completion
  // Offset and size are multiples of this, and so is every point where a short transfer is taken
  // up again. 1 for buffered files, the larger of the direct I/O alignments otherwise. Power of
  // two, at most 1 MiB.
  int64_t alignment = 1;
  IoPriority priority = IoPriority::kDemand;
  // Empty, or one per started kPieceBytes of `buffer`: the XXH3-64 of each piece. A write fills it
  // before the piece is handed to the kernel, a read after the piece has come in. Written by I/O
  // threads, to be read after the completion; the caller's until then.
  std::span<uint64_t> piece_hashes = {};
  uint64_t tag;  // handed back; no two pending requests of a backend have the same
};

std::string_view ToString(IoRequest::Kind kind);

// Aborts unless `request` keeps the rules stated at its fields.
void CheckRequest(const IoRequest& request);

// Receives completions. Called from I/O threads, from several at once when the backend has several.
// Must not block; may call the backend. The tag of the completed request is free again.
class IoSink {
 public:
  virtual ~IoSink() = default;
  virtual void OnIoComplete(uint64_t tag, absl::Status status) = 0;
};

struct IoCounters {
  int64_t bytes_read = 0;     // of pieces that were done
  int64_t bytes_written = 0;  // of pieces that were done
  int64_t requests = 0;       // completed, failed ones included
  int64_t failures = 0;       // completed with an error
  int64_t pieces = 0;         // parts of at most kPieceBytes that were started
  int64_t resubmits = 0;      // short transfers taken up again at their remainder
  int64_t retries = 0;        // EAGAIN, EINTR or no progress
  int64_t fixed_pieces = 0;   // transfers from or to registered memory
  int64_t system_calls = 0;   // that moved or awaited pieces: io_uring_enter, or pread and the like

  IoCounters& operator+=(const IoCounters& other);
};

// What is particular to how a backend was set up, for reports.
struct IoSetup {
  std::string_view flags = "none";  // of io_uring_setup; valid as long as the backend
  bool fixed_files = false;         // files are registered with the kernel
  bool fixed_memory = false;        // so is memory
};

// Thread-safe. The destructor waits until every request has completed (callbacks included); no
// other thread may be in a call by then.
class IoBackend {
 public:
  virtual ~IoBackend() = default;

  // Hands a request over; never waits for I/O and never calls the sink inline. Always taken:
  // callers are bounded by the memory that they hold.
  virtual void Submit(const IoRequest& request) = 0;
  // If no piece of the request has started, it completes with kCancelled. Otherwise, or when the
  // tag is unknown, nothing happens.
  virtual void Cancel(uint64_t tag) = 0;
  // Moves what has not started of a request behind the waiting requests of a more urgent priority.
  // Nothing happens when the tag is unknown or `priority` is not more urgent than the request's.
  virtual void Promote(uint64_t tag, IoPriority priority) = 0;

  virtual std::string_view name() const = 0;  // "io_uring" or "threads"
  virtual IoCounters counters() const = 0;
  virtual IoSetup setup() const { return {}; }
};

}  // namespace gantry

#endif  // GANTRY_NVME_IO_BACKEND_H_
