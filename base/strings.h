// The one place where std::string_view meets Debian's Abseil, whose absl::string_view is a type of
// its own: StrCat over std types, and Status constructors that take the result.
#ifndef GANTRY_BASE_STRINGS_H_
#define GANTRY_BASE_STRINGS_H_

#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gantry {

// Views `text` as Abseil's type. The result points into `text`.
inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view FromAbsl(absl::string_view text) { return {text.data(), text.size()}; }

// Concatenates the streamed forms of `parts` (anything with operator<<). Not for hot paths.
template <typename... Parts>
std::string StrCat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

// Status constructors whose message is StrCat of the arguments.
template <typename... Parts>
absl::Status MakeStatus(absl::StatusCode code, const Parts&... parts) {
  return absl::Status(code, ToAbsl(StrCat(parts...)));
}
template <typename... Parts>
absl::Status InvalidArgument(const Parts&... parts) {
  return MakeStatus(absl::StatusCode::kInvalidArgument, parts...);
}
template <typename... Parts>
absl::Status FailedPrecondition(const Parts&... parts) {
  return MakeStatus(absl::StatusCode::kFailedPrecondition, parts...);
}
template <typename... Parts>
absl::Status ResourceExhausted(const Parts&... parts) {
  return MakeStatus(absl::StatusCode::kResourceExhausted, parts...);
}
template <typename... Parts>
absl::Status NotFound(const Parts&... parts) {
  return MakeStatus(absl::StatusCode::kNotFound, parts...);
}
template <typename... Parts>
absl::Status DataLoss(const Parts&... parts) {
  return MakeStatus(absl::StatusCode::kDataLoss, parts...);
}
template <typename... Parts>
absl::Status Unavailable(const Parts&... parts) {
  return MakeStatus(absl::StatusCode::kUnavailable, parts...);
}
template <typename... Parts>
absl::Status Internal(const Parts&... parts) {
  return MakeStatus(absl::StatusCode::kInternal, parts...);
}

// Status for a failed system call: `what` (static text and values), then errno's name and text.
// ENOSPC and EDQUOT are kResourceExhausted, ENOENT kNotFound, EACCES/EPERM/EROFS kPermissionDenied,
// EEXIST kAlreadyExists, EIO kDataLoss, everything else kInternal.
absl::Status ErrnoStatus(int error_number, std::string_view what);

// The member of `candidates` with the least edit distance to `word` (insert, delete, replace, swap
// neighbours), the first of equals; empty when none is close (distance at most max(2, size/3) and
// less than size). For "unknown key 'x', did you mean 'y'?".
std::string NearestName(std::string_view word, const std::string* candidates, size_t count);

// The size of the UTF-8 sequence at the start of `text`, or 0 when there is no valid one: over-long
// forms, surrogates and values above U+10FFFF are none. REQUIRES: text is not empty.
size_t Utf8SequenceSize(std::string_view text);

}  // namespace gantry

#endif  // GANTRY_BASE_STRINGS_H_
