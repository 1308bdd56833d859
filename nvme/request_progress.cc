#include "nvme/request_progress.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/strings.h"
#include "nvme/describe.h"

namespace gantry {
namespace {

absl::StatusCode CodeOf(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::StatusCode::kResourceExhausted;
    case EIO:
    case EBADMSG:
    case EUCLEAN:
    case EILSEQ:
    case ENODATA:
      return absl::StatusCode::kDataLoss;
    case EAGAIN:
    case EINTR:
    case EBUSY:
    case ENODEV:
    case ENXIO:
    case ESHUTDOWN:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

RequestProgress::Action RequestProgress::Advance(int64_t result) {
  GANTRY_CHECK(error_number_ == 0) << "advanced after a failure";
  if (result == -EAGAIN || result == -EINTR) return Retry(static_cast<int>(-result));
  if (result < 0) return Fail(static_cast<int>(-result));
  const auto wanted = static_cast<int64_t>(next_.buffer.size());
  GANTRY_CHECK_LE(result, wanted);
  if (result == wanted) {  // a sync wants 0 and gets 0
    next_.offset += result;
    next_.buffer = {};
    return Action::kDone;
  }
  if (result == 0 && piece_.kind == IoRequest::Kind::kRead) return Fail(0);
  // Short. Direct I/O must go on at an aligned point, so a ragged tail is transferred again.
  const int64_t moved = result / piece_.alignment * piece_.alignment;
  if (moved == 0) return Retry(0);
  retries_ = 0;
  next_.offset += moved;
  next_.buffer = next_.buffer.subspan(static_cast<size_t>(moved));
  return Action::kResume;
}

RequestProgress::Action RequestProgress::Retry(int error_number) {
  if (retries_ >= kRetriesMax) return Fail(error_number);
  ++retries_;
  return Action::kRetryLater;
}

RequestProgress::Action RequestProgress::Fail(int error_number) {
  error_number_ = error_number;
  return Action::kFail;
}

absl::Status RequestProgress::Failure(std::string_view path) const {
  std::string where = StrCat(ToString(piece_.kind), " of '", path, "'");
  if (piece_.kind != IoRequest::Kind::kSync) {
    where = StrCat(ToString(piece_.kind), " of ", next_.buffer.size(), " bytes at offset ",
                   next_.offset, " of '", path, "'");
  }
  if (error_number_ != 0) {
    return MakeStatus(CodeOf(error_number_), where, ": ", DescribeErrno(error_number_));
  }
  if (piece_.kind == IoRequest::Kind::kRead) {
    return DataLoss(where, ": the file ends before these bytes; it was truncated");
  }
  return Internal(where, ": nothing was written in ", kRetriesMax, " tries");
}

bool SplitRequest::HasNext() const {
  if (!status_.ok()) return false;
  if (request_.kind == IoRequest::Kind::kSync) return !started_;
  return bytes_started_ < static_cast<int64_t>(request_.buffer.size());
}

RequestProgress SplitRequest::Next() {
  GANTRY_CHECK(HasNext());
  ++pieces_out_;
  started_ = true;
  IoRequest piece = request_;
  if (request_.kind == IoRequest::Kind::kSync) {
    piece.buffer = {};
    piece.piece_hashes = {};
    return RequestProgress(piece);
  }
  const int64_t left = static_cast<int64_t>(request_.buffer.size()) - bytes_started_;
  const int64_t size = std::min(left, kPieceBytes);
  piece.offset = request_.offset + bytes_started_;
  piece.buffer =
      request_.buffer.subspan(static_cast<size_t>(bytes_started_), static_cast<size_t>(size));
  if (!request_.piece_hashes.empty()) {
    piece.piece_hashes =
        request_.piece_hashes.subspan(static_cast<size_t>(bytes_started_ / kPieceBytes), 1);
  }
  bytes_started_ += size;
  return RequestProgress(piece);
}

void SplitRequest::Finish(absl::Status piece_status) {
  GANTRY_CHECK_GT(pieces_out_, 0);
  --pieces_out_;
  if (status_.ok()) status_ = std::move(piece_status);
}

bool SplitRequest::Cancel() {
  if (started_ || !HasNext()) return false;
  status_ = absl::CancelledError("cancelled before it started");
  return true;
}

absl::Status SplitRequest::TakeStatus() {
  GANTRY_CHECK(finished());
  return std::move(status_);
}

void HashPiece(const IoRequest& piece) {
  if (piece.piece_hashes.empty()) return;
  GANTRY_CHECK_EQ(piece.piece_hashes.size(), 1U);
  piece.piece_hashes[0] = Hash64(piece.buffer);
}

void CountDone(const IoRequest& piece, IoCounters& counters) {
  const auto bytes = static_cast<int64_t>(piece.buffer.size());
  if (piece.kind == IoRequest::Kind::kRead) counters.bytes_read += bytes;
  if (piece.kind == IoRequest::Kind::kWrite) counters.bytes_written += bytes;
}

}  // namespace gantry
