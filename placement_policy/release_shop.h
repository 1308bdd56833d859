// Host updates between a moment of one step and one of the next, as jobs of a flow shop. Internal
// to the lower bound's target; lower_bound.h says which windows there are and why they hold.
#ifndef GANTRY_PLACEMENT_POLICY_RELEASE_SHOP_H_
#define GANTRY_PLACEMENT_POLICY_RELEASE_SHOP_H_

#include <cstdint>

#include "base/clock.h"
#include "placement_policy/movement_problem.h"

namespace gantry {

// Updates of one subset: gradient down, update, parameter up.
class ReleaseShop {
 public:
  void Add(const MovementProblem& problem, const MovementProblem::HostUpdate& update);

  int64_t count() const { return count_; }
  // From the end of the moment that begins it to the end of the last fetch.
  Nanoseconds ThreeMachines(const MovementProblem& problem) const;
  // The same from the norm on.
  Nanoseconds TwoMachines(const MovementProblem& problem) const;

  Nanoseconds begin = 0;  // earliest start of the first machine
  int64_t position = 0;   // of the moment at whose end that is

 private:
  static constexpr Nanoseconds kNever = int64_t{1} << 60;

  Nanoseconds FilesBefore(const MovementProblem& problem) const;

  int64_t count_ = 0;
  Nanoseconds down_sum_ = 0;
  Nanoseconds update_sum_ = 0;
  Nanoseconds up_sum_ = 0;
  Nanoseconds down_least_ = kNever;
  Nanoseconds update_least_ = kNever;
  Nanoseconds up_least_ = kNever;
  Nanoseconds before_up_least_ = kNever;   // down + update
  Nanoseconds after_down_least_ = kNever;  // update + up
  int64_t in_file_ = 0;
  Nanoseconds file_least_ = kNever;        // a read; and a write when they share the device
  Nanoseconds after_file_least_ = kNever;  // update + up, of those in files
};

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_RELEASE_SHOP_H_
