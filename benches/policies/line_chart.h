// A line chart as inline SVG: a few lines over named positions, readable in light and dark, and on
// a phone. Colours are the page's: CSS variables --line0, --line1 and so on, --ink and --grid.
//
// Plain data; a pure function.
#ifndef GANTRY_BENCHES_POLICIES_LINE_CHART_H_
#define GANTRY_BENCHES_POLICIES_LINE_CHART_H_

#include <string>
#include <vector>

namespace gantry {

struct ChartPoint {
  int position;  // index into LineChart::positions
  double value;
  std::string tip;  // shown while the pointer rests on it
};

struct ChartLine {
  int colour;                      // of the page's --line variables
  std::vector<ChartPoint> points;  // in ascending position
};

enum class ChartScale {
  kLinear,  // from 0
  kLog,
};

struct LineChart {
  std::string title;
  std::vector<std::string> positions = {};  // along the horizontal axis, evenly spread
  ChartScale scale = ChartScale::kLinear;
  double reach = 0.0;     // the vertical axis goes up to this at least
  std::string unit = {};  // behind the numbers of the vertical axis
  std::vector<ChartLine> lines = {};
};

// Values that a scale cannot show (not finite; zero or less on a logarithmic one) are left out.
// REQUIRES: positions in range.
std::string ChartSvg(const LineChart& chart);

}  // namespace gantry

#endif  // GANTRY_BENCHES_POLICIES_LINE_CHART_H_
