// The program's reports: pages that open in a browser and traces that a viewer reads, of plans and
// of training runs, with the figures that the program prints as well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/report/testing/browser.h"
#include "trainer/cli/testing/program.h"
#include "trainer/cli/testing/program_folder.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Json = nlohmann::json;

Json Parse(const std::string& text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// What the page's script read.
Json DataOf(const std::string& page) {
  const std::string open = R"(id="data">)";
  const size_t begin = page.find(open) + open.size();
  return Parse(page.substr(begin, page.find("</script>", begin) - begin));
}

void ExpectOpens(const std::string& name, const std::string& html) {
  const absl::StatusOr<OpenedPage> page = OpenInBrowser(name, html, Picture::kTaken);
  ASSERT_THAT(page, IsOk());
  EXPECT_EQ(RootAttribute(*page, "data-ready"), "yes");
  EXPECT_EQ(RootAttribute(*page, "data-error"), "");
  EXPECT_THAT(page->console, IsEmpty());
  EXPECT_NE(RootAttribute(*page, "data-moves"), "0");
  EXPECT_GT(page->colours, 40);
  EXPECT_LT(page->commonest, 0.98);
}

// Slices by process and track in order, without overlap. Returns the names of tracks and counters.
std::vector<std::string> ExpectTrace(const std::string& text) {
  const Json trace = Parse(text);
  EXPECT_TRUE(trace.is_object());
  std::map<std::pair<int64_t, int64_t>, double> ends;
  std::vector<std::string> names;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "M" && event["name"] == "thread_name")
      names.push_back(event["args"]["name"]);
    if (event["ph"] == "C") names.push_back(event["name"]);
    if (event["ph"] != "X") continue;
    double& end = ends[{event["pid"], event["tid"]}];
    // The format's microseconds are decimal fractions.
    EXPECT_GE(event["ts"].get<double>(), end - 1e-6) << event;
    end = event["ts"].get<double>() + event["dur"].get<double>();
  }
  return names;
}

TEST(GantryReport, OfAPlan) {
  const ProgramFolder folder("report-plan");
  const ProgramResult result = folder.Run(
      {"plan", "--model=gpt2", "--machine=rtx4090+gen4", "--device-memory=512MiB",
       "--host-memory=1GiB", "--report=out/plan.html", "--report-trace=out/plan.json", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string page = folder.Read("out/plan.html");
  const Json json = Parse(result.out);
  EXPECT_THAT(page, AllOf(HasSubstr("gpt2 on rtx4090+gen4"),
                          HasSubstr(json["step"]["plan_hash"].get<std::string>()),
                          HasSubstr("window bound"), HasSubstr("free-placement bound"),
                          HasSubstr("512.0 MiB"), HasSubstr("1.0 GiB")));
  const Json data = DataOf(page);
  ASSERT_TRUE(data.is_object());
  ASSERT_EQ(data["timelines"].size(), 1u);
  EXPECT_EQ(data["timelines"][0]["tiers"].size(), 3u);
  EXPECT_THAT(data["chunks"][0].get<std::string>(), HasSubstr("wte"));
  ExpectOpens("plan", page);
  EXPECT_THAT(ExpectTrace(folder.Read("out/plan.json")),
              AllOf(Contains("computing"), Contains("to the device"), Contains("from the device"),
                    Contains("host updates"), Contains("device bytes"), Contains("host bytes")));
}

TEST(GantryReport, ThePlansPageIsTheSameEachTime) {
  const ProgramFolder folder("report-same");
  const std::vector<std::string> command = {"plan", "--model=gpt2", "--machine=rtx4090",
                                            "--device-memory=512MiB"};
  for (const char* const name : {"a", "b"}) {
    std::vector<std::string> words = command;
    words.push_back(StrCat("--report=", name, ".html"));
    words.push_back(StrCat("--report-trace=", name, ".json"));
    words.push_back(name[0] == 'a' ? "--threads=1" : "--threads=3");
    ASSERT_EQ(folder.Run(words).exit_code, 0);
  }
  EXPECT_EQ(folder.Read("a.html"), folder.Read("b.html"));
  EXPECT_EQ(folder.Read("a.json"), folder.Read("b.json"));
}

TEST(GantryReport, APlanThatCannotWriteItsPageSaysSo) {
  const ProgramFolder folder("report-nowhere");
  folder.Write("file", "not a folder");
  const ProgramResult result =
      folder.Run({"plan", "--model=gpt2", "--machine=rtx4090", "--report=file/plan.html"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, HasSubstr("file"));
  EXPECT_EQ(folder.Run({"plan", "--model=gpt2", "--machine=rtx4090", "--report="}).exit_code, 2);
}

TEST(GantryReport, OfATrainingRun) {
  const ProgramFolder folder("report-train");
  std::filesystem::create_directory(folder.path() + "/spill");
  const ProgramResult result = RunProgram(
      folder.Train({"--device=emulated", "--device_memory=2MiB", "--host_memory=4MiB",
                    "--spill_dirs=spill", "--report=out/run.html", "--report_trace=out/run.json",
                    "--trace_file=out/all.json", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Parse(result.out);
  const Json& step = json["step"];
  ASSERT_TRUE(step.is_object()) << result.out;
  EXPECT_GT(step["steps"], 0);
  EXPECT_LE(step["steps"], 9);  // two without a plan, and the one that made it
  EXPECT_THAT(step["plan_hash"].get<std::string>(), ::testing::MatchesRegex("[0-9a-f]{16}"));
  for (const char* const side : {"measured", "simulated"}) {
    SCOPED_TRACE(side);
    ASSERT_TRUE(step[side].is_object()) << step;
    double waits = 0.0;
    for (const auto& [cause, seconds] : step[side]["stalls"].items()) {
      EXPECT_GE(seconds, 0.0) << cause;
      waits += seconds.get<double>();
    }
    // Computing is all that is no waiting, measured; simulated, the step is nothing else.
    const double sum = waits + step[side]["compute_seconds"].get<double>();
    EXPECT_NEAR(sum, step[side]["seconds"], 1e-6);
    EXPECT_GT(step[side]["busy"]["host_to_device"], 0.0);
    EXPECT_GT(step[side]["busy"]["host_update"], 0.0);
    EXPECT_GT(step[side]["bytes"]["host_to_device"], 0);
  }
  EXPECT_GT(step["ratio"], 0.0);
  const std::string page = folder.Read("out/run.html");
  const Json data = DataOf(page);
  ASSERT_TRUE(data.is_object());
  ASSERT_EQ(data["timelines"].size(), 2u);
  EXPECT_EQ(data["timelines"][0]["title"], "simulated");
  EXPECT_EQ(data["timelines"][1]["title"], "measured");
  for (const Json& line : data["timelines"]) {
    EXPECT_GT(line["operators"].size(), 0u);
    EXPECT_GT(line["moves"].size(), 0u);
    EXPECT_GE(line["tiers"].size(), 2u);
  }
  // Every measured move is a block that the page can name.
  const Json& subjects = data["timelines"][1]["subjects"];
  ASSERT_GT(subjects.size(), 0u);
  for (const Json& subject : subjects) EXPECT_GE(subject[1], 0) << subject;
  EXPECT_THAT(data["chunks"][0].get<std::string>(), Not(IsEmpty()));
  EXPECT_THAT(page, AllOf(HasSubstr("measured / simulated"), HasSubstr("Certificate of the plan"),
                          HasSubstr("peak, measured")));
  ExpectOpens("train", page);
  EXPECT_THAT(ExpectTrace(folder.Read("out/run.json")),
              AllOf(Contains("to the device"), Contains("host updates"), Contains("device bytes")));
  // The trace of the whole run goes on beside it.
  EXPECT_THAT(folder.Read("out/all.json"),
              AllOf(HasSubstr("compute forward"), HasSubstr("parameter of chunk#"),
                    HasSubstr("device param bytes")));
}

TEST(GantryReport, ATrainingRunSaysItsStepInWords) {
  const ProgramFolder folder("report-words");
  const ProgramResult planned = RunProgram(
      folder.Train({"--device=emulated", "--device_memory=2MiB", "--host_memory=16MiB"}));
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.out, AllOf(HasSubstr("under the plan; simulated "), HasSubstr("\nwaited: "),
                                 HasSubstr("\nbusy: computing "), HasSubstr("to the device "),
                                 HasSubstr("(simulated ")));
  const ProgramResult on_demand = RunProgram(folder.Train({"--policy=auto"}));
  ASSERT_EQ(on_demand.exit_code, 0) << on_demand.err;
  EXPECT_THAT(on_demand.out, AllOf(HasSubstr("; no plan\n"), Not(HasSubstr("simulated"))));
}

// Without a plan, and with no step at all.
TEST(GantryReport, OfARunWithoutAPlan) {
  const ProgramFolder folder("report-bare");
  const ProgramResult result = RunProgram(
      folder.Train({"--policy=auto", "--checkpoint_dir=runs", "--report=run.html", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Parse(result.out);
  EXPECT_TRUE(json["step"]["simulated"].is_null());
  EXPECT_TRUE(json["step"]["ratio"].is_null());
  EXPECT_TRUE(json["step"]["plan_hash"].is_null());
  const std::string page = folder.Read("run.html");
  EXPECT_THAT(page, AllOf(HasSubstr("No plan was in force"), Not(HasSubstr("Certificate"))));
  EXPECT_EQ(DataOf(page)["timelines"].size(), 1u);
  const ProgramResult again = RunProgram(
      folder.Train({"--policy=auto", "--checkpoint_dir=runs", "--report=none.html", "--json"}));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(Parse(again.out)["step"].is_null());
  EXPECT_EQ(DataOf(folder.Read("none.html"))["timelines"].size(), 0u);
}

}  // namespace
}  // namespace gantry
