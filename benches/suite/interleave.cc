#include "benches/suite/interleave.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace gantry {

absl::StatusOr<Samples> Interleave(std::span<const Measurement> measurements,
                                   const InterleaveOptions& options) {
  GANTRY_CHECK_GE(options.rounds, 1);
  GANTRY_CHECK_GE(options.warm_ups, 0);
  const size_t count = measurements.size();
  Samples samples(count);
  for (int round = -options.warm_ups; round < options.rounds; ++round) {
    for (size_t i = 0; i < count; ++i) {
      if (options.stop != nullptr && options.stop->requested()) {
        return absl::CancelledError("the benchmark was stopped");
      }
      const size_t m = round % 2 == 0 ? i : count - 1 - i;
      GANTRY_ASSIGN_OR_RETURN(const double value, measurements[m]());
      if (round >= 0) samples[m].push_back(value);
    }
  }
  return samples;
}

double Quantile(std::span<const double> values, double fraction) {
  GANTRY_CHECK(!values.empty());
  GANTRY_CHECK(fraction >= 0.0 && fraction <= 1.0) << fraction;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(std::floor(position));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double rest = position - std::floor(position);
  return sorted[below] + (sorted[above] - sorted[below]) * rest;
}

}  // namespace gantry
