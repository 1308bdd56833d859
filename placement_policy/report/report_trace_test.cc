#include "placement_policy/report/report_trace.h"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/report/step_report.h"
#include "placement_policy/report/step_timeline.h"
#include "placement_policy/simulator.h"

namespace gantry {
namespace {

using ::testing::Contains;
using ::testing::SizeIs;

using Json = nlohmann::json;

StepReport Report(const std::string& name) {
  StepTimeline timeline{.duration = 3000, .slot_bytes = 1_MiB};
  timeline.names = {name};
  timeline.operators = {{.begin = 100, .end = 1000}, {.begin = 1500, .end = 3000}};
  timeline.waits = {{.begin = 0, .end = 100}, {.begin = 1000, .end = 1500}};
  timeline.subjects = {{.what = "gradient", .chunk = 0}};
  timeline.moves = {
      {.lane = SimulatedLane::kFileRead, .begin = -400, .end = 50, .bytes = 7, .subject = 0},
      {.lane = SimulatedLane::kFileRead, .begin = 10, .end = 90, .bytes = 7, .subject = 0},
      {.lane = SimulatedLane::kDeviceToHost,
       .begin = 20,
       .end = 4000,
       .bytes = 7,
       .subject = 0,
       .serves = 1,
       .serves_step = 1}};
  timeline.tiers = {{.name = "device", .budget = 8_MiB, .points = {{.time = 0, .slots = {1, 2}}}}};
  ArrangeMoves(timeline);
  StepReport report{.title = name};
  report.chunk_names = {name};
  report.simulated_timeline = timeline;
  report.measured_timeline = std::move(timeline);
  return report;
}

Json Parse(const StepReport& report) {
  return Json::parse(ReportTrace(report), nullptr, /*allow_exceptions=*/false);
}

TEST(ReportTraceTest, EmptyReportsAreTracesToo) {
  const Json trace = Parse({.title = "nothing"});
  ASSERT_TRUE(trace.is_object());
  EXPECT_THAT(trace["traceEvents"], SizeIs(0));
}

TEST(ReportTraceTest, SlicesOfATrackAreInOrderAndDoNotOverlap) {
  const Json trace = Parse(Report("name"));
  ASSERT_TRUE(trace.is_object());
  std::map<std::pair<int64_t, int64_t>, double> ends;
  std::map<std::pair<int64_t, int64_t>, std::string> tracks;
  int64_t slices = 0;
  int64_t counters = 0;
  for (const Json& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    const int64_t process = event["pid"];
    EXPECT_TRUE(process == 1 || process == 2);
    if (phase == "M" && event["name"] == "thread_name") {
      tracks[{process, event["tid"]}] = event["args"]["name"];
    }
    if (phase == "C") {
      ++counters;
      EXPECT_EQ(event["name"], "device bytes");
      EXPECT_EQ(event["args"]["parameters"], 1 << 20);
      EXPECT_EQ(event["args"]["gradients"], 2 << 20);
    }
    if (phase != "X") continue;
    ++slices;
    const std::pair<int64_t, int64_t> track(process, event["tid"]);
    EXPECT_TRUE(tracks.contains(track)) << event;
    const double begin = event["ts"];
    EXPECT_GE(begin, ends[track]) << event;
    EXPECT_GE(event["dur"], 0.0);
    ends[track] = begin + static_cast<double>(event["dur"]);
  }
  EXPECT_EQ(slices, 2 * (2 + 2 + 3));
  EXPECT_EQ(counters, 2);
  std::vector<std::string> names;
  for (const auto& [track, name] : tracks) names.push_back(name);
  for (const char* const name :
       {"computing", "waiting", "file reads", "file reads 2", "from the device"}) {
    EXPECT_THAT(names, Contains(name));
  }
}

TEST(ReportTraceTest, WhatBeganBeforeTheStepBeginsWithIt) {
  const Json trace = Parse(Report("name"));
  ASSERT_TRUE(trace.is_object());
  int64_t clipped = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event["tid"] != 4000) continue;  // the first row of file reads
    ++clipped;
    EXPECT_EQ(event["ts"], 0.0);
    EXPECT_EQ(event["dur"], 0.05);
  }
  EXPECT_EQ(clipped, 2);
}

TEST(ReportTraceTest, NamesMayBeAnything) {
  const std::string name = "</script>\"\\\n\xff";
  const Json trace = Parse(Report(name));
  ASSERT_TRUE(trace.is_object());
  bool found = false;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["name"] == "</script>\"\\\n\xef\xbf\xbd") found = true;
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(ReportTrace(Report(name)), ReportTrace(Report(name)));
}

}  // namespace
}  // namespace gantry
