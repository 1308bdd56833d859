// Goal: the file is JSON that another parser reads, and holds what was put in.
#include "base/trace_sink.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using absl::StatusCode;
using nlohmann::json;

class JsonTraceSinkTest : public ::testing::Test {
 protected:
  ~JsonTraceSinkTest() override { unlink(path_.c_str()); }

  json WriteAndParse(const JsonTraceSink& sink) {
    EXPECT_THAT(sink.Write(files_, path_), IsOk());
    const auto text = ReadFileToString(files_, path_, 64_MiB);
    EXPECT_THAT(text, IsOk());
    json parsed = json::parse(*text, nullptr, /*allow_exceptions=*/false);
    EXPECT_FALSE(parsed.is_discarded()) << *text;
    return parsed;
  }

  // The parsed events of one phase letter.
  static std::vector<json> Events(const json& trace, const std::string& phase) {
    std::vector<json> events;
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") == phase) events.push_back(event);
    }
    return events;
  }

  PosixFileCalls files_;
  const std::string path_ =
      ::testing::TempDir() + "/trace_sink_test_" + std::to_string(getpid()) + ".json";
};

TEST_F(JsonTraceSinkTest, AnEmptyTraceIsValid) {
  const JsonTraceSink sink(10);
  const json trace = WriteAndParse(sink);
  EXPECT_TRUE(trace.at("traceEvents").empty());
  EXPECT_EQ(trace.at("otherData").at("dropped_events"), 0);
}

TEST_F(JsonTraceSinkTest, SlicesHaveTimesInMicrosecondsAndANamedTrack) {
  JsonTraceSink sink(10);
  sink.Slice("copy", "fetch 3", 1'234'567, 1'234'606);
  sink.Slice("compute", "matmul", 0, 0);
  sink.Slice("copy", "fetch 4", 2'000'000, 5'000'000);
  const json trace = WriteAndParse(sink);

  std::map<std::string, int64_t> tracks;
  for (const json& event : Events(trace, "M")) {
    EXPECT_EQ(event.at("name"), "thread_name");
    tracks[event.at("args").at("name")] = event.at("tid");
  }
  ASSERT_EQ(tracks.size(), 2u);
  EXPECT_NE(tracks.at("copy"), tracks.at("compute"));

  const std::vector<json> slices = Events(trace, "X");
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(slices[0].at("name"), "fetch 3");
  EXPECT_EQ(slices[0].at("tid"), tracks.at("copy"));
  EXPECT_DOUBLE_EQ(slices[0].at("ts"), 1234.567);
  EXPECT_DOUBLE_EQ(slices[0].at("dur"), 0.039);
  EXPECT_EQ(slices[1].at("tid"), tracks.at("compute"));
  EXPECT_EQ(slices[1].at("dur"), 0.0);
  EXPECT_EQ(slices[2].at("tid"), tracks.at("copy"));
  EXPECT_DOUBLE_EQ(slices[2].at("dur"), 3000.0);
}

TEST_F(JsonTraceSinkTest, CountersKeepTheirValues) {
  JsonTraceSink sink(10);
  sink.Counter("device bytes", 500, 1'000'000'000'000);
  sink.Counter("device bytes", -1500, std::numeric_limits<int64_t>::min());
  const std::vector<json> counters = Events(WriteAndParse(sink), "C");
  ASSERT_EQ(counters.size(), 2u);
  EXPECT_EQ(counters[0].at("name"), "device bytes");
  EXPECT_DOUBLE_EQ(counters[0].at("ts"), 0.5);
  EXPECT_EQ(counters[0].at("args").at("value"), 1'000'000'000'000);
  EXPECT_DOUBLE_EQ(counters[1].at("ts"), -1.5);
  EXPECT_EQ(counters[1].at("args").at("value"), std::numeric_limits<int64_t>::min());
}

TEST_F(JsonTraceSinkTest, NamesAreEscaped) {
  JsonTraceSink sink(1000);
  std::vector<std::string> names = {"",
                                    "quote \" backslash \\ slash /",
                                    "line\nbreak\ttab\r\b\f",
                                    std::string("zero\0byte", 9),
                                    "\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80",
                                    "</script>"};
  for (int c = 1; c < 128; ++c) names.emplace_back(1, static_cast<char>(c));
  for (const std::string& name : names) sink.Slice(name, name, 0, 1);
  const json trace = WriteAndParse(sink);
  const std::vector<json> slices = Events(trace, "X");
  const std::vector<json> tracks = Events(trace, "M");
  ASSERT_EQ(slices.size(), names.size());
  ASSERT_EQ(tracks.size(), std::set(names.begin(), names.end()).size());
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(slices[i].at("name"), names[i]) << i;
}

TEST_F(JsonTraceSinkTest, BytesThatAreNotUtf8AreReplaced) {
  const std::string mark = "\xef\xbf\xbd";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a\xff"
       "b",
       "a" + mark + "b"},
      {"\xc3", mark},                        // cut
      {"\xe2\x82", mark + mark},             // cut
      {"\xc0\xaf", mark + mark},             // over-long
      {"\xe0\x80\xaf", mark + mark + mark},  // over-long
      {"\xed\xa0\x80", mark + mark + mark},  // a surrogate
      {"\xf0\x80\x80\x80", mark + mark + mark + mark},
      {"\xf4\x90\x80\x80", mark + mark + mark + mark},  // above U+10FFFF
      {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},         // U+10FFFF itself
      {"\x80", mark},
  };
  JsonTraceSink sink(100);
  for (const auto& [name, expected] : cases) sink.Slice("track", name, 0, 1);
  const std::vector<json> slices = Events(WriteAndParse(sink), "X");
  ASSERT_EQ(slices.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(slices[i].at("name"), cases[i].second) << i;
}

TEST_F(JsonTraceSinkTest, EventsAboveTheLimitAreCountedNotKept) {
  JsonTraceSink sink(2);
  EXPECT_EQ(sink.dropped(), 0);
  sink.Slice("t", "a", 0, 1);
  sink.Counter("c", 0, 1);
  EXPECT_EQ(sink.dropped(), 0);
  sink.Slice("t", "b", 0, 1);
  sink.Counter("c", 1, 1);
  sink.Counter("c", 2, 1);
  EXPECT_EQ(sink.dropped(), 3);
  const json trace = WriteAndParse(sink);
  EXPECT_EQ(Events(trace, "X").size(), 1u);
  EXPECT_EQ(Events(trace, "C").size(), 1u);
  EXPECT_EQ(trace.at("otherData").at("dropped_events"), 3);
}

TEST_F(JsonTraceSinkTest, ThreadsMayShareASink) {
  JsonTraceSink sink(350);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        for (int64_t round = 0; round < 100; ++round) {
          sink.Slice("track " + std::to_string(i), "slice", round, round + 1);
        }
      });
    }
  }
  EXPECT_EQ(sink.dropped(), 50);
  EXPECT_EQ(Events(WriteAndParse(sink), "X").size(), 350u);
}

TEST_F(JsonTraceSinkTest, WriteReportsAMissingDirectory) {
  const JsonTraceSink sink(1);
  EXPECT_THAT(sink.Write(files_, path_ + ".no_directory/trace.json"),
              StatusIs(StatusCode::kNotFound, "no_directory"));
}

TEST(JsonTraceSinkDeathTest, SlicesDoNotEndBeforeTheyBegin) {
  JsonTraceSink sink(1);
  EXPECT_DEATH(sink.Slice("track", "name", 2, 1), "slice name on track");
}

}  // namespace
}  // namespace gantry
