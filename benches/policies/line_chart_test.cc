#include "benches/policies/line_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <string>

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

LineChart Example() {
  return {.title = "step",
          .positions = {"2 %", "5 %", "10 %"},
          .unit = " s",
          .lines = {{.colour = 0, .points = {{0, 4.0, "a"}, {1, 2.0, "b"}, {2, 1.0, "c"}}},
                    {.colour = 3, .points = {{1, 3.0, "d"}}}}};
}

TEST(LineChartTest, DrawsEachPointAndLabel) {
  const std::string svg = ChartSvg(Example());
  EXPECT_EQ(Count(svg, "<circle"), 4);
  EXPECT_EQ(Count(svg, "<path"), 2);
  for (const char* part : {"<title>a</title>", ">2 %<", ">10 %<", ">4 s<", ">0 s<", "--line3"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  EXPECT_EQ(svg.find("<svg"), 0);
  EXPECT_EQ(svg.rfind("</svg>"), svg.size() - 6);
}

// A linear axis begins at 0, so that heights compare.
TEST(LineChartTest, LargerValuesLieHigher) {
  LineChart chart = Example();
  chart.lines = {{.colour = 0, .points = {{0, 0.0, "low"}, {1, 4.0, "high"}}}};
  const std::string svg = ChartSvg(chart);
  EXPECT_THAT(svg, HasSubstr("cy=\"174.0\" r=\"3\"><title>low"));  // the bottom
  EXPECT_THAT(svg, HasSubstr("cy=\"26.0\" r=\"3\"><title>high"));  // the top
}

TEST(LineChartTest, TheAxisReachesWhatItShould) {
  LineChart chart = Example();
  chart.reach = 100.0;
  EXPECT_THAT(ChartSvg(chart), HasSubstr(">100 s<"));
}

TEST(LineChartTest, ALogarithmicAxisSkipsWhatItCannotShow) {
  LineChart chart = Example();
  chart.scale = ChartScale::kLog;
  chart.lines[1].points = {{0, 0.0, "zero"},
                           {1, -1.0, "negative"},
                           {2, std::numeric_limits<double>::infinity(), "infinite"}};
  const std::string svg = ChartSvg(chart);
  EXPECT_EQ(Count(svg, "<circle"), 3);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  EXPECT_THAT(svg, HasSubstr(">2 s<"));
}

TEST(LineChartTest, OneValueOrNoneStillHasAnAxis) {
  for (const ChartScale scale : {ChartScale::kLinear, ChartScale::kLog}) {
    LineChart chart = Example();
    chart.scale = scale;
    chart.lines = {{.colour = 0, .points = {{1, 0.25, "only"}}}};
    const std::string one = ChartSvg(chart);
    EXPECT_EQ(Count(one, "<circle"), 1);
    EXPECT_THAT(one, Not(HasSubstr("nan")));
    chart.lines = {};
    const std::string none = ChartSvg(chart);
    EXPECT_EQ(Count(none, "<circle"), 0);
    EXPECT_THAT(none, Not(HasSubstr("nan")));
  }
}

TEST(LineChartTest, TextIsEscaped) {
  LineChart chart = Example();
  chart.title = "<script>\"&";
  chart.lines[0].points[0].tip = "</title>";
  const std::string svg = ChartSvg(chart);
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;&quot;&amp;"));
  EXPECT_THAT(svg, HasSubstr("&lt;/title&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
}

}  // namespace
}  // namespace gantry
