// The shape of the report, and what ratios mean.
#include "benches/suite/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benches/suite/machine.h"

namespace gantry {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<double> kValues = {8.0, 9.0, 30.0};
const std::vector<double> kBounds = {10.0, 10.0, 10.0};

TEST(BenchRow, RatioSaysHowMuchOfTheBoundIsReached) {
  const BenchRow faster = ComparisonRow({.name = "read",
                                         .unit = "GB/s",
                                         .better = Better::kHigher,
                                         .values = kValues,
                                         .bounds = kBounds});
  EXPECT_EQ(faster.value, 9.0);
  EXPECT_EQ(faster.bound, 10.0);
  EXPECT_DOUBLE_EQ(*faster.ratio, 0.9);
  EXPECT_DOUBLE_EQ(faster.spread->low, 0.8);
  EXPECT_DOUBLE_EQ(faster.spread->high, 3.0);
  EXPECT_EQ(faster.spread->rounds, 3);

  const BenchRow shorter = ComparisonRow({.name = "sweep",
                                          .unit = "s",
                                          .better = Better::kLower,
                                          .values = kBounds,
                                          .bounds = kValues});
  EXPECT_DOUBLE_EQ(*shorter.ratio, 0.9);
}

TEST(BenchRow, WithoutBoundsThereIsNoRatio) {
  const BenchRow row = ComparisonRow(
      {.name = "read", .unit = "GB/s", .better = Better::kHigher, .values = kValues, .bounds = {}});
  EXPECT_EQ(row.value, 9.0);
  EXPECT_FALSE(row.bound.has_value());
  EXPECT_FALSE(row.ratio.has_value());
  EXPECT_FALSE(row.spread.has_value());
}

TEST(BenchRow, LimitsAtOrBelowNothingHaveNoRatio) {
  const auto ratio_of = [](double value) {
    return LimitRow(
               {.name = "x", .value = value, .bound = 3.0, .unit = "%", .better = Better::kLower})
        .ratio;
  };
  EXPECT_EQ(ratio_of(1.5), 2.0);
  EXPECT_FALSE(ratio_of(0.0).has_value());
  EXPECT_FALSE(ratio_of(-1.0).has_value());
}

BenchReport SampleReport() {
  BenchReport report{.bench = "io", .machine = {}, .rows = {}};
  report.machine.Add("cpu", "a \"quick\" one");
  report.machine.Add("processors", int64_t{2});
  report.machine.Add("rotational", false);
  report.machine.Add("load_average", 0.5);
  report.rows = {ComparisonRow({.name = "read",
                                .unit = "GB/s",
                                .better = Better::kHigher,
                                .values = kValues,
                                .bounds = kBounds}),
                 SkippedRow("checksum", "%", "there is none"),
                 FigureRow("endless", std::numeric_limits<double>::infinity(), "s")};
  return report;
}

TEST(BenchReport, JsonIsOneObjectInOneLine) {
  const std::string text = BenchJson(SampleReport());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  const Json json = Json::parse(text);
  EXPECT_EQ(json["bench"], "io");
  EXPECT_EQ(json["machine"]["cpu"], "a \"quick\" one");
  EXPECT_EQ(json["machine"]["processors"], 2);
  EXPECT_EQ(json["machine"]["rotational"], false);
  EXPECT_EQ(json["machine"]["load_average"], 0.5);
  ASSERT_EQ(json["rows"].size(), 3U);
  const Json& read = json["rows"][0];
  EXPECT_EQ(read["name"], "read");
  EXPECT_EQ(read["value"], 9.0);
  EXPECT_EQ(read["unit"], "GB/s");
  EXPECT_EQ(read["bound"], 10.0);
  EXPECT_DOUBLE_EQ(read["ratio"].get<double>(), 0.9);
  EXPECT_EQ(read["rounds"], 3);
  EXPECT_FALSE(read.contains("note"));
  for (const Json& row : json["rows"]) {
    for (const char* key : {"name", "value", "unit", "bound", "ratio"}) {
      EXPECT_TRUE(row.contains(key)) << row << " lacks " << key;
    }
  }
  EXPECT_TRUE(json["rows"][1]["value"].is_null());
  EXPECT_EQ(json["rows"][1]["note"], "there is none");
  EXPECT_TRUE(json["rows"][2]["value"].is_null()) << "JSON has no infinity";
}

TEST(BenchReport, TextShowsEveryRowAndFact) {
  const std::string text = BenchText(SampleReport());
  for (const char* part : {"read", "9.000 GB/s", "10.00", "0.900", "0.800 to 3.000", "checksum",
                           "there is none", "processors: 2"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr(" \n"))) << "blanks at the end of a line";
}

TEST(MachineDescription, KnowsThisMachine) {
  MachineDescription machine = DescribeMachine();
  for (const char* key : {"processors", "memory_bytes", "kernel", "build"}) {
    EXPECT_FALSE(machine.Find(key).empty()) << key;
  }
  EXPECT_EQ(machine.Find("file_system"), "");
  DescribeDirectory(::testing::TempDir(), machine);
  EXPECT_FALSE(machine.Find("file_system").empty());
  EXPECT_FALSE(machine.Find("free_bytes").empty());
  const size_t facts = machine.facts.size();
  DescribeDirectory("/no/such/directory", machine);
  EXPECT_EQ(machine.facts.size(), facts);
}

}  // namespace
}  // namespace gantry
