#include "placement_policy/interval_sweep.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace gantry {
namespace {

constexpr int64_t kBits = 64;
constexpr int64_t kPeriodsMax = 64;

// Bits 0 to `bit`.
uint64_t UpTo(int64_t bit) { return ~uint64_t{0} >> (kBits - 1 - bit); }

int64_t HighestBit(uint64_t word) { return kBits - 1 - std::countl_zero(word); }

}  // namespace

UnitsByEnd::UnitsByEnd(int64_t period)
    : period_(period),
      counts_(static_cast<size_t>(period), 0),
      words_(static_cast<size_t>((period + kBits - 1) / kBits), 0),
      summary_((words_.size() + kBits - 1) / kBits, 0) {
  GANTRY_CHECK_GT(period, 0);
}

void UnitsByEnd::Add(int64_t end, int64_t count) {
  if (count == 0) return;
  const auto index = static_cast<size_t>(Index(end));
  counts_[index] += count;
  size_ += count;
  words_[index / kBits] |= uint64_t{1} << (index % kBits);
  summary_[index / kBits / kBits] |= uint64_t{1} << (index / kBits % kBits);
}

void UnitsByEnd::Remove(int64_t index, int64_t count) {
  const auto i = static_cast<size_t>(index);
  counts_[i] -= count;
  size_ -= count;
  if (counts_[i] > 0) return;
  words_[i / kBits] &= ~(uint64_t{1} << (i % kBits));
  if (words_[i / kBits] == 0) {
    summary_[i / kBits / kBits] &= ~(uint64_t{1} << (i / kBits % kBits));
  }
}

int64_t UnitsByEnd::Take(int64_t end) {
  const int64_t index = Index(end);
  const int64_t count = counts_[static_cast<size_t>(index)];
  if (count > 0) Remove(index, count);
  return count;
}

int64_t UnitsByEnd::Previous(int64_t from) const {
  if (from < 0) return -1;
  const int64_t word = from / kBits;
  const uint64_t own = words_[static_cast<size_t>(word)] & UpTo(from % kBits);
  if (own != 0) return word * kBits + HighestBit(own);
  for (int64_t s = word / kBits; s >= 0; --s) {
    uint64_t words = summary_[static_cast<size_t>(s)];
    if (s == word / kBits) words = word % kBits == 0 ? 0 : words & UpTo(word % kBits - 1);
    if (words == 0) continue;
    const int64_t found = s * kBits + HighestBit(words);
    return found * kBits + HighestBit(words_[static_cast<size_t>(found)]);
  }
  return -1;
}

UnitsByEnd::Units UnitsByEnd::DropFurthest(int64_t now, int64_t count) {
  // From furthest to nearest: the present moment's index (a whole period away), then down.
  int64_t index = Previous(Index(now));
  if (index < 0) index = Previous(period_ - 1);
  GANTRY_CHECK_GE(index, 0);
  const int64_t dropped = std::min(count, counts_[static_cast<size_t>(index)]);
  Remove(index, dropped);
  return {.end = index, .count = dropped};
}

void UnitsByEnd::Clear() {
  std::ranges::fill(counts_, 0);
  std::ranges::fill(words_, 0);
  std::ranges::fill(summary_, 0);
  size_ = 0;
}

DropRate LeastDrops(std::span<const UnitInterval> intervals, std::span<const int64_t> room) {
  const auto period = static_cast<int64_t>(room.size());
  if (intervals.empty()) return {};
  // By start.
  std::vector<int64_t> first(room.size() + 1, 0);
  for (const UnitInterval& interval : intervals) ++first[static_cast<size_t>(interval.start) + 1];
  for (size_t m = 0; m < room.size(); ++m) first[m + 1] += first[m];
  std::vector<UnitInterval> sorted(intervals.size());
  std::vector<int64_t> next(first.begin(), first.end() - 1);
  for (const UnitInterval& interval : intervals) {
    sorted[static_cast<size_t>(next[static_cast<size_t>(interval.start)]++)] = interval;
  }

  UnitsByEnd kept(period);
  std::vector<std::vector<int64_t>> kept_at;  // when period p begins
  std::vector<int64_t> dropped_at;
  std::vector<int64_t> open(room.size(), 0);  // dropped, by end modulo the period, not yet ended
  int64_t dropped = 0;
  int64_t ended = 0;  // of these
  for (int64_t p = 0; p < kPeriodsMax; ++p) {
    for (size_t q = 0; q < kept_at.size(); ++q) {
      if (kept_at[q] == kept.counts()) {
        return {.units = dropped - dropped_at[q], .periods = p - static_cast<int64_t>(q)};
      }
    }
    kept_at.push_back(kept.counts());
    dropped_at.push_back(dropped);
    for (int64_t m = 0; m < period; ++m) {
      const auto index = static_cast<size_t>(m);
      const int64_t now = p * period + m;
      kept.Take(now);
      ended += open[index];
      open[index] = 0;
      while (kept.size() > room[index]) {
        const UnitsByEnd::Units units = kept.DropFurthest(now, kept.size() - room[index]);
        dropped += units.count;
        open[static_cast<size_t>(units.end)] += units.count;
      }
      for (int64_t i = first[index]; i < first[index + 1]; ++i) {
        const UnitInterval& interval = sorted[static_cast<size_t>(i)];
        kept.Add(now + interval.distance, interval.units);
      }
    }
  }
  // What has ended is the least for this prefix, whatever was on the device before.
  return {.units = ended, .periods = kPeriodsMax};
}

}  // namespace gantry
