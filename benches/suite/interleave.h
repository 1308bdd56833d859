// Compares measurements by taking them in turns, since a shared machine drifts by more than the
// differences that matter: A B, B A, A B, ... after a warm-up of each that does not count.
//
//   GANTRY_ASSIGN_OR_RETURN(const Samples samples, Interleave({ours, theirs}, {.rounds = 5}));
//   Median(samples[0]) / Median(samples[1])
//
// Stateless.
#ifndef GANTRY_BENCHES_SUITE_INTERLEAVE_H_
#define GANTRY_BENCHES_SUITE_INTERLEAVE_H_

#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/booster/stop_source.h"

namespace gantry {

// One measurement: a figure, always of the same unit.
using Measurement = std::function<absl::StatusOr<double>()>;

// samples[m][r]: what measurement m gave in round r.
using Samples = std::vector<std::vector<double>>;

struct InterleaveOptions {
  int rounds;                        // at least 1
  int warm_ups = 1;                  // rounds before these, not counted
  const StopSource* stop = nullptr;  // null: runs to its end
};

// Takes every measurement once per round, in the order given and, in every other round, in the
// opposite one, so that what drifts steadily meets all alike. Errors: the first that a measurement
// returns; kCancelled when a stop was requested.
absl::StatusOr<Samples> Interleave(std::span<const Measurement> measurements,
                                   const InterleaveOptions& options);

// The value below which `fraction` of `values` lie, by linear interpolation between neighbours.
// REQUIRES: values not empty, fraction in [0, 1].
double Quantile(std::span<const double> values, double fraction);
inline double Median(std::span<const double> values) { return Quantile(values, 0.5); }

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_INTERLEAVE_H_
