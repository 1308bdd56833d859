// How equal extents lie over several directories, in proportion to their shares of the bandwidth.
// Extents are cut into one contiguous part per directory, at multiples of kPieceBytes, where every
// directory gets at least one piece that way; otherwise they are dealt out whole.
//
// Value type. Thread-compatible.
#ifndef GANTRY_NVME_STRIPE_LAYOUT_H_
#define GANTRY_NVME_STRIPE_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"

namespace gantry {

class StripeLayout {
 public:
  struct Options {
    Bytes extent_bytes;
    std::vector<double> shares;  // per directory, at least one; only their ratios count
  };
  // Errors: kInvalidArgument for a share that is not a positive finite number, no shares at all, or
  // an extent of no bytes.
  static absl::StatusOr<StripeLayout> Create(const Options& options);

  bool cut() const { return cut_; }
  int64_t stripes() const { return static_cast<int64_t>(shares_.size()); }
  double share(int64_t stripe) const;  // of all shares, 0 to 1
  // Bytes of one extent in the file of directory `stripe`: its part, or all of it.
  int64_t part_bytes(int64_t stripe) const;
  // Where that part begins inside the extent.
  int64_t part_offset(int64_t stripe) const;

  // The directory of the next extent that is dealt out whole. REQUIRES: !cut().
  int64_t Deal();

 private:
  StripeLayout() = default;

  int64_t extent_bytes_ = 0;
  std::vector<double> shares_;  // their sum is 1
  bool cut_ = false;
  std::vector<int64_t> part_ends_;  // per directory, when cut
  std::vector<int64_t> dealt_;      // extents per directory, when not
};

}  // namespace gantry

#endif  // GANTRY_NVME_STRIPE_LAYOUT_H_
