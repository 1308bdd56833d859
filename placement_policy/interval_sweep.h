// The furthest-end rule on intervals between two uses of a block: which must be dropped when only
// so many can be kept. For units of one slot the rule is optimal (interval packing): whenever more
// are kept than there is room, drop one of those that end last. After every prefix of moments the
// count of dropped intervals that have ended is then the least possible, and an interval of several
// slots taken as that many units gives a lower bound.
#ifndef GANTRY_PLACEMENT_POLICY_INTERVAL_SWEEP_H_
#define GANTRY_PLACEMENT_POLICY_INTERVAL_SWEEP_H_

#include <cstdint>
#include <span>
#include <vector>

namespace gantry {

// Units of kept intervals by the moment at which they end. All ends lie within one period after the
// present moment, so they are stored modulo the period. Every operation costs O(period / 4096).
class UnitsByEnd {
 public:
  explicit UnitsByEnd(int64_t period);

  struct Units {
    int64_t end;  // modulo the period
    int64_t count;
  };

  void Add(int64_t end, int64_t count);
  // Removes those that end at `end` and returns how many there were.
  int64_t Take(int64_t end);
  // Removes up to `count` of those that end last, seen from `now`; all of them have one end.
  // REQUIRES: size() > 0.
  Units DropFurthest(int64_t now, int64_t count);
  void Clear();
  int64_t size() const { return size_; }
  // The number of units by end modulo the period.
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  int64_t Index(int64_t end) const { return end % period_; }
  void Remove(int64_t index, int64_t count);
  // The largest index at most `from` that has units; -1: none.
  int64_t Previous(int64_t from) const;

  const int64_t period_;
  int64_t size_ = 0;
  std::vector<int64_t> counts_;
  std::vector<uint64_t> words_;    // a bit for each index that has units
  std::vector<uint64_t> summary_;  // a bit for each word that is not 0
};

// An interval from a use at moment `start` to one `distance` moments later. It needs its slots at
// the moments between the two; those of the uses themselves are not counted.
struct UnitInterval {
  int32_t start = 0;
  int32_t distance = 1;  // 1 to the number of moments
  int64_t units = 1;
};

// `units` dropped in `periods` periods.
struct DropRate {
  int64_t units = 0;
  int64_t periods = 1;
};

// The least number of units per period that must be dropped in the long run when the same intervals
// come every period and `room` units fit at each of its moments. Exact, when the kept set repeats
// within 64 periods, as it does after two or three; otherwise a lower bound.
// REQUIRES: starts below room.size(), distances of at most room.size(); room of at least 0.
DropRate LeastDrops(std::span<const UnitInterval> intervals, std::span<const int64_t> room);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_INTERVAL_SWEEP_H_
