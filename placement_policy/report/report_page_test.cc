// The page as text, and as a browser shows it.
#include "placement_policy/report/report_page.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement_policy/report/step_report.h"
#include "placement_policy/report/step_timeline.h"
#include "placement_policy/report/testing/browser.h"
#include "placement_policy/simulator.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kHostile[] = "</script><img src=x onerror=\"document.title='owned'\">\xff";

StepFigures Figures(Nanoseconds elapsed) {
  StepFigures figures{.elapsed = elapsed, .compute = elapsed / 2, .steps = 3};
  figures.stalls[static_cast<size_t>(SimulatedStall::kNorm)] = elapsed / 4;
  figures.stalls[static_cast<size_t>(SimulatedStall::kFetch)] = elapsed / 4;
  figures.lanes[static_cast<size_t>(SimulatedLane::kFileRead)] = {
      .busy = elapsed / 8, .bytes = 3 << 20, .moves = 3};
  return figures;
}

// Operators one behind the other, with a move to the device before each.
StepTimeline Timeline(int64_t moments, const std::string& name) {
  StepTimeline timeline{.duration = 1000 * moments, .slot_bytes = 1_MiB};
  timeline.names = {name, "update"};
  timeline.subjects = {{.what = "parameter", .chunk = 0}, {.what = name, .chunk = -1}};
  TierCurve device{.name = "device", .budget = 16_MiB, .points = {}};
  for (int64_t i = 0; i < moments; ++i) {
    const Nanoseconds begin = 1000 * i;
    timeline.operators.push_back({.begin = begin + 200,
                                  .end = begin + 1000,
                                  .name = 0,
                                  .phase = i * 2 < moments ? Phase::kForward : Phase::kBackward});
    timeline.waits.push_back({.begin = begin, .end = begin + 200});
    timeline.moves.push_back({.begin = begin - 500,
                              .end = begin + 150,
                              .bytes = 1 << 20,
                              .subject = static_cast<int32_t>(i % 2),
                              .serves = static_cast<int32_t>(i)});
    device.points.push_back({.time = begin, .slots = {8, i % 4, 2, 1, 1}});
  }
  timeline.tiers.push_back(device);
  ArrangeMoves(timeline);
  return timeline;
}

StepReport Report(int64_t moments, const std::string& name) {
  return {.title = name,
          .subtitle = name,
          .certificate = {{.name = "window bound", .value = "1.23 s", .note = name}},
          .simulated = Figures(8'000'000),
          .measured = Figures(10'000'000),
          .tiers = {{.name = "device",
                     .budget = 16_MiB,
                     .simulated_peak = 12_MiB,
                     .measured_peak = 13_MiB}},
          .simulated_timeline = Timeline(moments, name),
          .measured_timeline = Timeline(moments, name),
          .chunk_names = {name},
          .notes = {name}};
}

// What the page's script reads.
nlohmann::json DataOf(const std::string& page) {
  const std::string open = R"(<script type="application/json" id="data">)";
  const size_t begin = page.find(open);
  EXPECT_NE(begin, std::string::npos);
  const size_t end = page.find("</script>", begin);
  return nlohmann::json::parse(page.substr(begin + open.size(), end - begin - open.size()), nullptr,
                               /*allow_exceptions=*/false);
}

OpenedPage Open(const std::string& name, const std::string& html, Picture picture) {
  const absl::StatusOr<OpenedPage> page = OpenInBrowser(name, html, picture);
  EXPECT_THAT(page, IsOk());
  return page.ok() ? *page : OpenedPage();
}

void ExpectReady(const OpenedPage& page) {
  EXPECT_EQ(RootAttribute(page, "data-ready"), "yes");
  EXPECT_EQ(RootAttribute(page, "data-error"), "");
  EXPECT_THAT(page.console, IsEmpty());
}

TEST(ReportPageTest, TheSameReportGivesTheSameBytes) {
  EXPECT_EQ(ReportPage(Report(10, "name")), ReportPage(Report(10, "name")));
}

TEST(ReportPageTest, ThePageNeedsNothingElse) {
  const std::string page = ReportPage(Report(10, "name"));
  for (const char* const outside : {"http:", "https:", "src=", "@import", "url(", "fetch("}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy"));
  EXPECT_THAT(page, Not(HasSubstr("{{")));
}

TEST(ReportPageTest, DataIsWhatTheReportSays) {
  const nlohmann::json data = DataOf(ReportPage(Report(3, "name")));
  ASSERT_TRUE(data.is_object());
  EXPECT_EQ(data["chunks"], nlohmann::json({"name"}));
  ASSERT_THAT(data["timelines"], SizeIs(2));
  const nlohmann::json& line = data["timelines"][0];
  EXPECT_EQ(line["duration"], 3000);
  EXPECT_THAT(line["operators"], SizeIs(3 * 7));
  EXPECT_THAT(line["waits"], SizeIs(3 * 3));
  EXPECT_THAT(line["moves"], SizeIs(3 * 10));
  EXPECT_THAT(line["tiers"][0]["points"], SizeIs(3 * 6));
  EXPECT_EQ(line["tiers"][0]["budget"], 16 << 20);
  // Begins count from the one before.
  EXPECT_EQ(line["moves"][0], -500);
  EXPECT_EQ(line["moves"][10], 1000);
}

TEST(ReportPageTest, TablesStandInThePageItself) {
  const std::string page = ReportPage(Report(3, "name"));
  EXPECT_THAT(page, AllOf(HasSubstr("10.0 ms"), HasSubstr("8.00 ms"), HasSubstr("1.250"),
                          HasSubstr("waiting for the gradient norm"), HasSubstr("25.0 %"),
                          HasSubstr("12.0 MiB"), HasSubstr("13.0 MiB"), HasSubstr("1.23 s")));
}

TEST(ReportPageTest, HostileNamesStayText) {
  const std::string page = ReportPage(Report(4, kHostile));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  const nlohmann::json data = DataOf(page);
  ASSERT_TRUE(data.is_object());
  EXPECT_THAT(data["chunks"][0], HasSubstr("</script><img"));
  const OpenedPage opened = Open("hostile", WithScript(page, R"(
    const canvas = document.querySelector('canvas');
    canvas.focus();
    for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'ArrowRight']) {
      canvas.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
    }
    const details = document.querySelector('.details');
    document.documentElement.setAttribute('data-images', document.images.length);
    document.documentElement.setAttribute('data-inside', details.children.length);
    document.documentElement.setAttribute('data-shown', details.textContent.includes('<img'));
  )"),
                                 Picture::kNone);
  ExpectReady(opened);
  EXPECT_EQ(RootAttribute(opened, "data-images"), "0");
  EXPECT_EQ(RootAttribute(opened, "data-inside"), "0");
  EXPECT_EQ(RootAttribute(opened, "data-shown"), "true");
  EXPECT_THAT(opened.dom, Not(HasSubstr("<title>owned")));
}

TEST(ReportPageTest, EmptyAndSmallestReportsOpen) {
  const OpenedPage empty = Open("empty", ReportPage({.title = "nothing"}), Picture::kNone);
  ExpectReady(empty);
  EXPECT_EQ(RootAttribute(empty, "data-moves"), "0");
  StepReport bare{.title = "no time"};
  bare.simulated = StepFigures();
  bare.simulated_timeline = StepTimeline();
  ExpectReady(Open("bare", ReportPage(bare), Picture::kNone));
  const OpenedPage one = Open("one", ReportPage(Report(1, "name")), Picture::kNone);
  ExpectReady(one);
  EXPECT_EQ(RootAttribute(one, "data-moves"), "2");
}

TEST(ReportPageTest, ThePageCanBeSeen) {
  const OpenedPage page = Open("seen", ReportPage(Report(40, "name")), Picture::kTaken);
  ExpectReady(page);
  EXPECT_EQ(RootAttribute(page, "data-moves"), "80");
  EXPECT_GT(page.colours, 40);
  EXPECT_LT(page.commonest, 0.98);
}

// Over a move of the third strip, in the middle of the page's first chart.
TEST(ReportPageTest, PointingAtAMoveTellsOfIt) {
  const OpenedPage page = Open("pointed", WithScript(ReportPage(Report(4, "name")), R"(
    const canvas = document.querySelector('canvas');
    const box = canvas.getBoundingClientRect();
    const root = document.documentElement;
    for (let y = 0; y < box.height && !root.hasAttribute('data-told'); y += 4) {
      for (let x = 130; x < box.width; x += 8) {
        canvas.dispatchEvent(new PointerEvent('pointermove',
          { clientX: box.left + x, clientY: box.top + y, bubbles: true }));
        const text = document.querySelector('.details').textContent;
        if (text.startsWith('parameter of chunk 0')) root.setAttribute('data-told', text);
      }
    }
    root.setAttribute('data-tip', getComputedStyle(document.getElementById('tip')).visibility);
  )"),
                               Picture::kNone);
  ExpectReady(page);
  EXPECT_THAT(RootAttribute(page, "data-told"),
              AllOf(HasSubstr("tensors: name"), HasSubstr("to the device: 1.00 MiB"),
                    HasSubstr("why: fetched for its use; “name”"), HasSubstr("meanwhile")));
}

TEST(ReportPageTest, AHugeStepIsCutToWhatABrowserCanShow) {
  StepReport report = Report(200'000, "name");
  report.chunk_names.assign(20'000, std::string(200, 'x'));
  const std::string page = ReportPage(report);
  EXPECT_LE(page.size(), 5'000'000u);
  EXPECT_TRUE(DataOf(page).is_object());
  EXPECT_THAT(page, HasSubstr("200000 moves are drawn as "));
  ExpectReady(Open("huge", page, Picture::kNone));
}

}  // namespace
}  // namespace gantry
