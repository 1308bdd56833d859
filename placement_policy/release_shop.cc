#include "placement_policy/release_shop.h"

#include <algorithm>

namespace gantry {

void ReleaseShop::Add(const MovementProblem& problem, const MovementProblem::HostUpdate& update) {
  const Nanoseconds down = LaneTime(problem.device_to_host, problem.block_bytes(update.gradient));
  const Nanoseconds up = LaneTime(problem.host_to_device, problem.block_bytes(update.parameter));
  ++count_;
  down_sum_ += down;
  update_sum_ += update.update;
  up_sum_ += up;
  down_least_ = std::min(down_least_, down);
  update_least_ = std::min(update_least_, update.update);
  up_least_ = std::min(up_least_, up);
  before_up_least_ = std::min(before_up_least_, down + update.update);
  after_down_least_ = std::min(after_down_least_, update.update + up);
  if (update.file_bytes == 0) return;
  Nanoseconds file = LaneTime(problem.file_read, update.file_bytes);
  if (problem.file_half_duplex) file += LaneTime(problem.file_write, update.file_bytes);
  ++in_file_;
  file_least_ = std::min(file_least_, file);
  after_file_least_ = std::min(after_file_least_, update.update + up);
}

Nanoseconds ReleaseShop::ThreeMachines(const MovementProblem& problem) const {
  Nanoseconds time = down_sum_ + after_down_least_;
  time = std::max(time, down_least_ + update_sum_ + up_least_);
  time = std::max(time, before_up_least_ + up_sum_);
  if (problem.link_half_duplex) time = std::max(time, down_sum_ + up_sum_);
  return std::max(time, FilesBefore(problem));
}

Nanoseconds ReleaseShop::TwoMachines(const MovementProblem& problem) const {
  const Nanoseconds time = std::max(update_sum_ + up_least_, update_least_ + up_sum_);
  return std::max(time, FilesBefore(problem));
}

// Buffers can hold the states of some before; the others' are read, each into a buffer that a write
// has freed, and the last of them is still to be updated and fetched.
Nanoseconds ReleaseShop::FilesBefore(const MovementProblem& problem) const {
  const int64_t read = in_file_ - problem.host_buffers;
  return read <= 0 ? 0 : read * file_least_ + after_file_least_;
}

}  // namespace gantry
