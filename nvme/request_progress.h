// The decisions every I/O backend shares, without any system call: how a request is cut into
// pieces, and what follows from the result of each system call (done, resume after a short
// transfer, retry, fail).
//
// Both classes are value types for one thread at a time. They view the request's buffer.
#ifndef GANTRY_NVME_REQUEST_PROGRESS_H_
#define GANTRY_NVME_REQUEST_PROGRESS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "nvme/io_backend.h"

namespace gantry {

// How often one piece is tried again without having moved a byte before it fails. With
// kRetryDelayNanoseconds between the tries a persistent refusal takes a quarter of a second.
inline constexpr int kRetriesMax = 256;
inline constexpr int64_t kRetryDelayNanoseconds = 1'000'000;

// One piece: a contiguous transfer and what is left of it.
class RequestProgress {
 public:
  enum class Action {
    kDone,        // the piece is complete
    kResume,      // issue next() at once: the last call was short
    kRetryLater,  // issue next() after kRetryDelayNanoseconds
    kFail,        // see Failure
  };

  explicit RequestProgress(const IoRequest& piece) : piece_(piece), next_(piece) {}

  // Takes the result of a system call that was given next(): bytes moved, or a negative errno.
  // REQUIRES: result <= next().buffer.size().
  Action Advance(int64_t result);

  // What the next system call is to do.
  const IoRequest& next() const { return next_; }
  const IoRequest& piece() const { return piece_; }

  // The error after kFail; `path` names the file in its message.
  absl::Status Failure(std::string_view path) const;

 private:
  Action Retry(int error_number);
  Action Fail(int error_number);

  IoRequest piece_;
  IoRequest next_;        // the remainder of piece_
  int retries_ = 0;       // since the last byte moved
  int error_number_ = 0;  // after kFail; 0: the file ended, or nothing moved any more
};

// A whole request and the pieces of it that are out.
class SplitRequest {
 public:
  explicit SplitRequest(const IoRequest& request) : request_(request) {}

  // Whether another piece may start; false from the first failure on.
  bool HasNext() const;
  // Starts the next piece, whose piece_hashes holds its own hash or nothing. REQUIRES: HasNext().
  RequestProgress Next();
  // Ends a piece that Next started. The first error is kept.
  void Finish(absl::Status piece_status);

  // Ends a request of which no piece has started, with kCancelled; whether it was one.
  bool Cancel();

  // Nothing is out and nothing is left to start. An empty request is born finished.
  bool finished() const { return pieces_out_ == 0 && !HasNext(); }
  // How it ended, to be called once. Moves, so that the status the caller hands to another thread
  // shares nothing with this one. REQUIRES: finished().
  absl::Status TakeStatus();
  uint64_t tag() const { return request_.tag; }
  IoPriority priority() const { return request_.priority; }
  void set_priority(IoPriority priority) { request_.priority = priority; }

 private:
  IoRequest request_;
  int64_t bytes_started_ = 0;
  bool started_ = false;  // at least one piece
  int64_t pieces_out_ = 0;
  absl::Status status_;
};

// Fills the hash of `piece` (as SplitRequest::Next gave it) where one is wanted.
void HashPiece(const IoRequest& piece);

// Adds a piece that was done to the byte counts.
void CountDone(const IoRequest& piece, IoCounters& counters);

}  // namespace gantry

#endif  // GANTRY_NVME_REQUEST_PROGRESS_H_
