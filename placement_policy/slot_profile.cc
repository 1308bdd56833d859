#include "placement_policy/slot_profile.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"

namespace gantry {

// Bottom up and without pushing down: a node's min contains its own add, so the value of a range is
// the minimum over its nodes, each with the adds of its ancestors.
SlotProfile::SlotProfile(std::span<const int64_t> slack)
    : size_(static_cast<int64_t>(slack.size())), leaves_(std::bit_ceil(slack.size())) {
  GANTRY_CHECK(!slack.empty());
  nodes_.resize(2 * leaves_);
  for (size_t i = 0; i < leaves_; ++i) {
    nodes_[leaves_ + i].min = i < slack.size() ? slack[i] : std::numeric_limits<int64_t>::max() / 4;
  }
  for (size_t node = leaves_; node-- > 1;) Pull(node);
}

void SlotProfile::Pull(size_t node) {
  nodes_[node].min = std::min(nodes_[2 * node].min, nodes_[2 * node + 1].min) + nodes_[node].add;
}

int64_t SlotProfile::Min(int64_t begin, int64_t end) const {
  GANTRY_DCHECK(begin < end && end <= begin + size_);
  const int64_t first = begin % size_;
  const int64_t last = first + (end - begin);
  if (last <= size_) return MinOf(first, last);
  return std::min(MinOf(first, size_), MinOf(0, last - size_));
}

void SlotProfile::Add(int64_t begin, int64_t end, int64_t slots) {
  GANTRY_DCHECK(begin < end && end <= begin + size_);
  const int64_t first = begin % size_;
  const int64_t last = first + (end - begin);
  AddTo(first, std::min(last, size_), slots);
  if (last > size_) AddTo(0, last - size_, slots);
}

int64_t SlotProfile::MinOf(int64_t begin, int64_t end) const {
  constexpr int64_t kInfinity = std::numeric_limits<int64_t>::max() / 2;
  size_t left = static_cast<size_t>(begin) + leaves_;
  size_t right = static_cast<size_t>(end) - 1 + leaves_;
  int64_t left_min = nodes_[left].min;
  int64_t right_min = nodes_[right].min;
  if (left == right) right_min = kInfinity;
  while (left / 2 != right / 2) {
    if (left % 2 == 0) left_min = std::min(left_min, nodes_[left + 1].min);
    if (right % 2 == 1) right_min = std::min(right_min, nodes_[right - 1].min);
    left /= 2;
    right /= 2;
    left_min += nodes_[left].add;
    right_min += nodes_[right].add;
  }
  int64_t result = std::min(left_min, right_min);
  for (size_t node = left / 2; node >= 1; node /= 2) result += nodes_[node].add;
  return result;
}

void SlotProfile::AddTo(int64_t begin, int64_t end, int64_t slots) {
  size_t left = static_cast<size_t>(begin) + leaves_;
  size_t right = static_cast<size_t>(end) - 1 + leaves_;
  const auto apply = [&](size_t node) {
    nodes_[node].min += slots;
    nodes_[node].add += slots;
  };
  apply(left);
  if (left != right) apply(right);
  while (left / 2 != right / 2) {
    if (left % 2 == 0) apply(left + 1);
    if (right % 2 == 1) apply(right - 1);
    left /= 2;
    right /= 2;
    Pull(left);
    Pull(right);
  }
  for (size_t node = left / 2; node >= 1; node /= 2) Pull(node);
}

void SlotProfile::Set(int64_t position, int64_t slack) {
  size_t node = static_cast<size_t>(position) + leaves_;
  int64_t above = 0;
  for (size_t up = node / 2; up >= 1; up /= 2) above += nodes_[up].add;
  nodes_[node].min = slack - above;
  for (node /= 2; node >= 1; node /= 2) Pull(node);
}

}  // namespace gantry
