// What a benchmark found: rows, each a figure beside the bound it is compared with, on a described
// machine. As one JSON object or as a table.
//
// Plain data; stateless functions.
#ifndef GANTRY_BENCHES_SUITE_REPORT_H_
#define GANTRY_BENCHES_SUITE_REPORT_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benches/suite/interleave.h"
#include "benches/suite/machine.h"

namespace gantry {

enum class Better { kHigher, kLower };

// The least and the greatest ratio of a single round.
struct Spread {
  double low;
  double high;
  int rounds;
};

struct BenchRow {
  std::string name;
  std::optional<double> value;  // nothing: could not be measured, `note` says why
  std::string unit;
  std::optional<double> bound;  // in the same unit
  // How much of the bound is reached, 1 being all of it: value / bound where more is better,
  // bound / value where less is. Of simulated steps (`policies`) always value / bound.
  std::optional<double> ratio;
  std::optional<Spread> spread;
  std::vector<std::pair<std::string, double>> figures;  // what the value is made of
  std::string note;
};

struct BenchReport {
  std::string bench;
  MachineDescription machine;
  std::vector<BenchRow> rows;
};

// A figure without a bound.
BenchRow FigureRow(std::string_view name, double value, std::string_view unit);

struct Limit {
  std::string_view name;
  double value;
  double bound;
  std::string_view unit;
  Better better;
};
// A figure beside a fixed bound. The ratio is left out where it has no meaning: at 0 or below.
BenchRow LimitRow(const Limit& limit);

struct Comparison {
  std::string_view name;
  std::string_view unit;
  Better better;
  std::span<const double> values;  // one per round
  std::span<const double> bounds;  // of the same rounds; empty: no bound
};
// Medians, their ratio, and the spread of the rounds' ratios. REQUIRES: values not empty.
BenchRow ComparisonRow(const Comparison& comparison);

// A row that could not be measured.
BenchRow SkippedRow(std::string_view name, std::string_view unit, std::string_view reason);

// {"bench", "machine": {...}, "rows": [{"name", "value", "unit", "bound", "ratio", ...}]} in one
// line. What is not known is null; "low", "high", "rounds", "figures" and "note" appear where they
// exist.
std::string BenchJson(const BenchReport& report);

// For people.
std::string BenchText(const BenchReport& report);

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_REPORT_H_
