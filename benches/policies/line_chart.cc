#include "benches/policies/line_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/strings.h"
#include "placement_policy/report/html_text.h"

namespace gantry {
namespace {

// In units of the picture, which the page scales to the width there is.
constexpr double kWidth = 320;
constexpr double kHeight = 200;
constexpr double kLeft = 48;
constexpr double kRight = 10;
constexpr double kTop = 26;
constexpr double kBottom = 26;
constexpr int kGridLinesWanted = 4;

std::string Number(double value, const char* format) {
  std::array<char, 64> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), format, value);
  return {buffer.data(), static_cast<size_t>(length)};
}
std::string At(double coordinate) { return Number(coordinate, "%.1f"); }
std::string Label(double value) { return Number(value, "%.3g"); }

bool Shown(double value, ChartScale scale) {
  return std::isfinite(value) && (scale == ChartScale::kLinear || value > 0.0);
}

// The least number of the form 1, 2 or 5 times a power of ten that is not below `value`.
double RoundStep(double value) {
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= value * (1.0 - 1e-9)) return factor * power;
  }
  return 10.0 * power;
}

// The vertical axis: where values lie, and which lines are drawn across.
class Axis {
 public:
  explicit Axis(const LineChart& chart) : scale_(chart.scale) {
    bool any = false;
    for (const ChartLine& line : chart.lines) {
      for (const ChartPoint& point : line.points) {
        if (!Shown(point.value, scale_)) continue;
        low_ = any ? std::min(low_, point.value) : point.value;
        high_ = any ? std::max(high_, point.value) : point.value;
        any = true;
      }
    }
    if (!any) low_ = high_ = 1.0;
    high_ = std::max(high_, chart.reach);
    if (scale_ == ChartScale::kLinear) {
      Linear();
    } else {
      Logarithmic();
    }
  }

  double Y(double value) const {
    const double share = (Scaled(value) - Scaled(low_)) / (Scaled(high_) - Scaled(low_));
    return kHeight - kBottom - share * (kHeight - kTop - kBottom);
  }
  const std::vector<double>& marks() const { return marks_; }

 private:
  double Scaled(double value) const {
    return scale_ == ChartScale::kLog ? std::log10(value) : value;
  }

  void Linear() {
    low_ = std::min(low_, 0.0);
    high_ = std::max(high_, low_ + 1e-12);
    const double step = RoundStep((high_ - low_) / kGridLinesWanted);
    low_ = std::floor(low_ / step + 1e-9) * step;
    high_ = std::ceil(high_ / step - 1e-9) * step;
    for (double mark = low_; mark <= high_ + step / 2; mark += step) marks_.push_back(mark);
  }

  // 1, 2 and 5 times powers of ten; powers alone over many of them.
  void Logarithmic() {
    low_ *= 0.9;
    high_ *= 1.1;
    const bool wide = high_ / low_ > 300.0;
    for (double power = std::pow(10.0, std::floor(std::log10(low_))); power <= high_;
         power *= 10.0) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        if (wide && factor > 1.0) continue;
        const double mark = factor * power;
        if (mark >= low_ && mark <= high_) marks_.push_back(mark);
      }
    }
    if (marks_.size() < 2) marks_ = {low_ / 0.9, high_ / 1.1};
  }

  ChartScale scale_;
  double low_ = 1.0;
  double high_ = 1.0;
  std::vector<double> marks_;
};

double X(size_t position, size_t count) {
  const double width = kWidth - kLeft - kRight;
  if (count < 2) return kLeft + width / 2;
  // Half a place is left at both ends.
  const auto n = static_cast<double>(count);
  return kLeft + width * (static_cast<double>(position) + 0.5) / n;
}

std::string GridSvg(const LineChart& chart, const Axis& axis) {
  std::string svg;
  for (const double mark : axis.marks()) {
    const std::string y = At(axis.Y(mark));
    svg += StrCat("<line class=\"grid\" x1=\"", At(kLeft), "\" x2=\"", At(kWidth - kRight),
                  "\" y1=\"", y, "\" y2=\"", y, "\"/>");
    svg += StrCat("<text class=\"mark end\" x=\"", At(kLeft - 5), "\" y=\"", At(axis.Y(mark) + 3.5),
                  "\">", Label(mark), HtmlText(chart.unit), "</text>");
  }
  for (size_t i = 0; i < chart.positions.size(); ++i) {
    svg += StrCat("<text class=\"mark middle\" x=\"", At(X(i, chart.positions.size())), "\" y=\"",
                  At(kHeight - 9), "\">", HtmlText(chart.positions[i]), "</text>");
  }
  return svg;
}

std::string LineSvg(const LineChart& chart, const ChartLine& line, const Axis& axis) {
  std::string path;
  std::string dots;
  for (const ChartPoint& point : line.points) {
    GANTRY_CHECK(point.position >= 0 &&
                 static_cast<size_t>(point.position) < chart.positions.size())
        << point.position;
    if (!Shown(point.value, chart.scale)) continue;
    const std::string x = At(X(static_cast<size_t>(point.position), chart.positions.size()));
    const std::string y = At(axis.Y(point.value));
    path += StrCat(path.empty() ? "M" : "L", x, " ", y);
    dots += StrCat("<circle cx=\"", x, "\" cy=\"", y, "\" r=\"3\"><title>", HtmlText(point.tip),
                   "</title></circle>");
  }
  return StrCat("<g style=\"--line:var(--line", line.colour, ")\"><path class=\"line\" d=\"", path,
                "\"/>", dots, "</g>");
}

}  // namespace

std::string ChartSvg(const LineChart& chart) {
  const Axis axis(chart);
  const std::string title = HtmlText(chart.title);
  std::string svg =
      StrCat("<svg role=\"img\" aria-label=\"", title, "\" viewBox=\"0 0 ", At(kWidth), " ",
             At(kHeight), "\"><text class=\"title\" x=\"4\" y=\"14\">", title, "</text>");
  svg += GridSvg(chart, axis);
  for (const ChartLine& line : chart.lines) {
    if (!line.points.empty()) svg += LineSvg(chart, line, axis);
  }
  return svg + "</svg>";
}

}  // namespace gantry
