#include "base/strings.h"

#include <string.h>  // strerrorname_np, strerrordesc_np: glibc extensions

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace gantry {
namespace {

absl::StatusCode CodeOfErrno(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:  // NOLINT(misc-include-cleaner): <cerrno> is its header
      return absl::StatusCode::kResourceExhausted;
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case EIO:
      return absl::StatusCode::kDataLoss;
    default:
      return absl::StatusCode::kInternal;
  }
}

// Insertions, deletions, substitutions and swaps of neighbours (the common typing errors) cost 1.
int64_t EditDistance(std::string_view a, std::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<int64_t> two_up(width), up(width), row(width);
  for (size_t j = 0; j < width; ++j) up[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j < width; ++j) {
      const int64_t substitution = up[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({up[j] + 1, row[j - 1] + 1, substitution});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], two_up[j - 2] + 1);
    }
    std::swap(two_up, up);
    std::swap(up, row);
  }
  return up[b.size()];
}

}  // namespace

absl::Status ErrnoStatus(int error_number, std::string_view what) {
  const char* name = strerrorname_np(error_number);
  const char* description = strerrordesc_np(error_number);
  if (name == nullptr || description == nullptr) {
    return MakeStatus(CodeOfErrno(error_number), what, ": errno ", error_number);
  }
  return MakeStatus(CodeOfErrno(error_number), what, ": ", name, " (", description, ")");
}

std::string NearestName(std::string_view word, const std::string* candidates, size_t count) {
  const auto size = static_cast<int64_t>(word.size());
  // A word whose every letter would have to change is not close to anything.
  const int64_t distance_max = std::min(std::max<int64_t>(2, size / 3), size - 1);
  const std::string* nearest = nullptr;
  int64_t nearest_distance = distance_max + 1;
  for (size_t i = 0; i < count; ++i) {
    const int64_t distance = EditDistance(word, candidates[i]);
    if (distance < nearest_distance) {
      nearest = &candidates[i];
      nearest_distance = distance;
    }
  }
  return nearest == nullptr ? std::string() : *nearest;
}

size_t Utf8SequenceSize(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const size_t size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Over-long forms, surrogates and values above U+10FFFF.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) >= 0xa0)) return 0;
  if ((lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) >= 0x90)) return 0;
  return size;
}

}  // namespace gantry
