// `gantry bench policies` from the outside: rows, page, and wrong inputs in one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/strings.h"
#include "trainer/cli/testing/program.h"
#include "trainer/cli/testing/program_folder.h"

namespace gantry {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> Small(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"bench",         "policies",      "--quick",
                                        "--models=gpt2", "--tokens=2048", "--budgets=0.02,0.5"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Json Row(const Json& report, const std::string& name) {
  for (const Json& row : report["rows"]) {
    if (row["name"] == name) return row;
  }
  ADD_FAILURE() << "no row " << name;
  return Json();
}

TEST(GantryBenchPolicies, PrintsRowsByModelMachineBudgetAndPolicy) {
  const ProgramFolder folder("policies_rows");
  const ProgramResult result = folder.Run(Small({"--json", "--machine=rtx4090"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
  const Json report = Json::parse(result.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << result.out;
  EXPECT_EQ(report["bench"], "policies");
  EXPECT_TRUE(report["machine"]["simulated"]);
  const Json planned = Row(report, "gpt2/rtx4090/0.50@2048/planned");
  EXPECT_EQ(planned["unit"], "s");
  EXPECT_GE(planned["value"].get<double>(), planned["figures"]["compute"].get<double>());
  const Json none = Row(report, "gpt2/rtx4090/0.02@2048/planned");
  EXPECT_TRUE(none["value"].is_null());
  EXPECT_THAT(none["note"].get<std::string>(), HasSubstr("does not fit: moment "));
}

TEST(GantryBenchPolicies, WritesAPageAndTables) {
  const ProgramFolder folder("policies_page");
  const ProgramResult result = folder.Run(Small({"--html=out/policies.html"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("planned: step and compute / step"));
  EXPECT_THAT(result.err, HasSubstr("policies: wrote out/policies.html"));
  const std::string page = folder.Read("out/policies.html");
  EXPECT_THAT(page, HasSubstr("<svg"));
  EXPECT_THAT(page, Not(HasSubstr("http")));
}

TEST(GantryBenchPolicies, TakesRecordedStepsAndMachineFiles) {
  const ProgramFolder folder("policies_trace");
  ProgramResult result = folder.Run({"train", "tiny.yaml", "--trace=step.json", "--steps=3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  folder.Write("slow.json", R"({"format": "gantry-machine", "version": 1, "name": "slow",
    "device": {"name": "d", "memory_bytes": 1000000000, "memory_bytes_per_second": 1000000000,
               "flops_per_second": 1000000000},
    "host": {"memory_bytes": 4000000000, "update_bytes_per_second": 1000000000},
    "copies": {"duplex": "independent",
               "host_to_device": {"bytes_per_second": 1000000000, "latency_ns": 0},
               "device_to_host": {"bytes_per_second": 1000000000, "latency_ns": 0}}})");
  result = folder.Run({"bench", "policies", "--trace=step.json", "--machine=slow.json",
                       "--budgets=2", "--policies=planned", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = Json::parse(result.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << result.out;
  const std::string name = report["rows"][0]["name"];
  EXPECT_EQ(name.find("step/slow/2.00@"), 0) << name;
  EXPECT_TRUE(report["rows"][0]["value"].is_number()) << report["rows"][0];
}

TEST(GantryBenchPolicies, WrongInputsAreOneLine) {
  const ProgramFolder folder("policies_wrong");
  folder.Write("empty.json", "{}");
  struct Case {
    const char* argument;
    const char* line;
  };
  const Case cases[] = {
      {"--models=gpt3", "no file, folder or built-in model 'gpt3', did you mean 'gpt2'?"},
      {"--models=gpt2,gpt2", "--models=gpt2,gpt2: 'gpt2' is there twice"},
      {"--models=gpt2,", "--models=gpt2,: a name is missing"},
      {"--models=empty.json", "empty.json: "},
      {"--machine=rtx4091", "machine 'rtx4091': 'rtx4091' is not known, did you mean 'rtx4090'?"},
      {"--machine=empty.json", "empty.json: "},
      {"--machine=none.json", "open none.json: ENOENT"},
      {"--trace=empty.json", "empty.json: "},
      {"--budgets=0", "--budgets: '0': expected a share of the training state from 0.005 to 4"},
      {"--budgets=10%", "--budgets: '10%': expected a share"},
      {"--budgets=nan", "--budgets: 'nan': expected a share"},
      {"--tokens=0", "--tokens: '0': expected tokens of a step, 1 to 16777216"},
      {"--tokens=1e3", "--tokens: '1e3': expected tokens of a step"},
      {"--policies=planed", "--policies: 'planed' is no policy, did you mean 'planned'?"},
      {"--threads=0", "--threads=0: expected 1 to 1024"},
      {"--budget=0.1", "unknown option '--budget', did you mean '--budgets'?"},
      {"--quick=1", "--quick takes no value"},
      {"more", "'more' is one word too many"},
  };
  for (const Case& item : cases) {
    SCOPED_TRACE(item.argument);
    const ProgramResult result = folder.Run({"bench", "policies", item.argument});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr(StrCat("gantry: error: ", item.line)));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST(GantryBenchPolicies, APageThatCannotBeWrittenIsAFailure) {
  const ProgramFolder folder("policies_unwritable");
  folder.Write("file", "x");
  const ProgramResult result = folder.Run(Small({"--machine=rtx4090", "--html=file/page.html"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("gantry: error: "));
}

}  // namespace
}  // namespace gantry
