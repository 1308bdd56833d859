#include "nvme/stripe_layout.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/check.h"
#include "base/strings.h"
#include "nvme/io_backend.h"

namespace gantry {

absl::StatusOr<StripeLayout> StripeLayout::Create(const Options& options) {
  if (options.shares.empty()) return InvalidArgument("there is no directory to lay extents over");
  if (options.extent_bytes.count() <= 0) {
    return InvalidArgument("an extent of ", options.extent_bytes.count(), " bytes is impossible");
  }
  double sum = 0;
  for (const double share : options.shares) {
    if (!std::isfinite(share) || share <= 0) {
      return InvalidArgument("a directory's share must be a positive number, not ", share);
    }
    sum += share;
  }
  StripeLayout layout;
  layout.extent_bytes_ = options.extent_bytes.count();
  layout.dealt_.assign(options.shares.size(), 0);
  const int64_t pieces = layout.extent_bytes_ / kPieceBytes;
  double share_end = 0;
  int64_t end = 0;
  layout.cut_ = true;
  for (const double share : options.shares) {
    layout.shares_.push_back(share / sum);
    share_end += share / sum;
    const int64_t begin = end;
    const bool last = layout.shares_.size() == options.shares.size();
    end = last ? pieces : std::llround(share_end * static_cast<double>(pieces));
    layout.part_ends_.push_back(last ? layout.extent_bytes_ : end * kPieceBytes);
    if (end <= begin) layout.cut_ = false;
  }
  // One directory has all of it, whatever the size.
  if (options.shares.size() == 1) layout.cut_ = true;
  return layout;
}

double StripeLayout::share(int64_t stripe) const { return shares_[static_cast<size_t>(stripe)]; }

int64_t StripeLayout::part_offset(int64_t stripe) const {
  return !cut_ || stripe == 0 ? 0 : part_ends_[static_cast<size_t>(stripe) - 1];
}

int64_t StripeLayout::part_bytes(int64_t stripe) const {
  if (!cut_) return extent_bytes_;
  return part_ends_[static_cast<size_t>(stripe)] - part_offset(stripe);
}

// The directory that is the least served after it would get one more: at any time the counts are
// within one of the proportion.
int64_t StripeLayout::Deal() {
  GANTRY_CHECK(!cut_);
  size_t best = 0;
  double best_load = 0;
  for (size_t i = 0; i < shares_.size(); ++i) {
    const double load = static_cast<double>(dealt_[i] + 1) / shares_[i];
    if (i == 0 || load < best_load) {
      best = i;
      best_load = load;
    }
  }
  ++dealt_[best];
  return static_cast<int64_t>(best);
}

}  // namespace gantry
