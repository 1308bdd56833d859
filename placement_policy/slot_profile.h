// How many slots are left at each of the next moments of a cyclic step: a tree that adds to ranges
// and finds their minimum. A ring: position t stands for the next absolute moment congruent to t.
#ifndef GANTRY_PLACEMENT_POLICY_SLOT_PROFILE_H_
#define GANTRY_PLACEMENT_POLICY_SLOT_PROFILE_H_

#include <cstdint>
#include <span>
#include <vector>

namespace gantry {

class SlotProfile {
 public:
  // `slack` by moment: slots left when nothing more is planned. REQUIRES: not empty.
  explicit SlotProfile(std::span<const int64_t> slack);

  // Least slack of the moments [begin, end), absolute. REQUIRES: begin < end <= begin + size.
  int64_t Min(int64_t begin, int64_t end) const;
  // Adds to each of them. REQUIRES: as above.
  void Add(int64_t begin, int64_t end, int64_t slots);
  // Sets one moment, given by its position in the step.
  void Set(int64_t position, int64_t slack);
  int64_t size() const { return size_; }

 private:
  struct Node {
    int64_t min = 0;
    int64_t add = 0;  // to the whole subtree, contained in min
  };
  int64_t MinOf(int64_t begin, int64_t end) const;
  void AddTo(int64_t begin, int64_t end, int64_t slots);
  void Pull(size_t node);

  int64_t size_;
  size_t leaves_;  // a power of two
  std::vector<Node> nodes_;
};

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_SLOT_PROFILE_H_
