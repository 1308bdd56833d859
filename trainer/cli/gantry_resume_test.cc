// The program as a user meets it: killed, interrupted, resumed; its results must be those of a run
// that nobody disturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/strings.h"
#include "trainer/cli/testing/program.h"
#include "trainer/cli/testing/program_folder.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

// Budgets in which everything moves through all tiers.
const std::vector<std::string> kTight = {"--device=emulated", "--device_memory=3MiB",
                                         "--host_memory=3MiB", "--spill_dirs=."};

std::vector<std::string> With(std::vector<std::string> list, std::vector<std::string> more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

// The last loss logged for each step.
std::vector<std::string> Losses(const ProgramFolder& folder, const std::string& log) {
  std::vector<std::string> losses;
  std::istringstream lines(folder.Read(log));
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"event\":\"step\"") == std::string::npos) continue;
    const auto step = static_cast<size_t>(std::stoll(JsonValue(line, "step")));
    losses.resize(std::max(losses.size(), step));
    losses[step - 1] = JsonValue(line, "loss");
  }
  return losses;
}

// The directories of runs in the folder.
std::vector<std::string> RunDirectories(const ProgramFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const std::string name = entry.path().filename();
    if (name.starts_with("gantry-")) names.push_back(name);
  }
  return names;
}

class GantryKilledTest : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(GantryKilledTest, AtAnyMomentAndResumedIsBitIdentical) {
  constexpr uint64_t kSeed = 77;
  SCOPED_TRACE(kSeed);
  const Random random({.seed = kSeed, .stream = 0});
  const ProgramFolder folder("kill");
  const ProgramResult whole =
      RunProgram(folder.Train(With(GetParam(), {"--json", "--log_file=whole.jsonl"})));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;

  const ProgramOptions options = folder.Train(
      With(With(GetParam(), kTight), {"--json", "--checkpoint_dir=c", "--log_file=killed.jsonl"}));
  int64_t killed = 0;
  ProgramResult last;
  for (uint64_t life = 0; life < 40; ++life) {
    Program program(options);
    // Past the first line every life makes some progress; the kill falls anywhere behind the line.
    const int64_t lines = 1 + random.Below(6, life);
    bool alive = true;
    for (int64_t i = 0; i < lines && alive; ++i) {
      alive = program.WaitForLine("step ").has_value();
    }
    if (life < 8 && alive) program.Signal(SIGKILL);
    last = program.Finish();
    if (last.signal == 0) break;
    EXPECT_EQ(last.signal, SIGKILL);
    ++killed;
  }
  EXPECT_GE(killed, 2) << "the runs ended before they could be killed";
  ASSERT_EQ(last.exit_code, 0) << last.err;
  EXPECT_EQ(JsonValue(last.out, "left_behind"), "[]") << last.err;
  EXPECT_EQ(JsonValue(last.out, "parameter_hash"), JsonValue(whole.out, "parameter_hash"));
  EXPECT_EQ(Losses(folder, "killed.jsonl"), Losses(folder, "whole.jsonl"));
  EXPECT_THAT(last.err, HasSubstr(StrCat("runs that died left ", killed)));
  EXPECT_THAT(last.err, HasSubstr("behind: `gantry clean .` removes "));
  EXPECT_EQ(RunDirectories(folder).size(), static_cast<size_t>(killed));
  EXPECT_EQ(folder.Run({"clean", "."}).exit_code, 0);
  EXPECT_THAT(RunDirectories(folder), IsEmpty());
}

// A run that is killed beside one that lives.
TEST(GantryResume, CleanRemovesTheDeadAndNotTheLiving) {
  const ProgramFolder folder("clean");
  folder.Write("spill.yaml", "memory: {spill_dirs: [.]}\n");
  const ProgramOptions endless = folder.Train(With(kTight, {"--steps=100000"}));
  Program living(endless);
  Program dying(endless);
  for (Program* program : {&living, &dying}) {
    ASSERT_TRUE(program->WaitForLine("step 1/").has_value());
  }
  EXPECT_EQ(folder.Run({"clean", "."}).out, "nothing to clean\n");
  EXPECT_EQ(RunDirectories(folder).size(), 2u);
  dying.Signal(SIGKILL);
  EXPECT_EQ(dying.Finish().signal, SIGKILL);

  const ProgramResult dry = folder.Run({"clean", "--config=spill.yaml", "--dry-run"});
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_THAT(dry.out, MatchesRegex("would remove \\./gantry-[0-9]+-[0-9a-f]+: started [0-9]+s ago "
                                    "as process [0-9]+ on [^ ]+\n"));
  EXPECT_EQ(RunDirectories(folder).size(), 2u);
  const ProgramResult json = folder.Run({"clean", ".", "--json"});
  EXPECT_EQ(json.exit_code, 0) << json.err;
  EXPECT_THAT(JsonValue(json.out, "runs"), AllOf(HasSubstr("\"age_seconds\":"),
                                                 HasSubstr("\"removed\":true,\"state\":\"dead\"")));
  EXPECT_EQ(RunDirectories(folder).size(), 1u);
  EXPECT_EQ(folder.Run({"clean", ".", "--json"}).out,
            "{\"command\":\"clean\",\"dry_run\":false,\"runs\":[]}\n");
  EXPECT_TRUE(living.WaitForLine("step 2").has_value());
  living.Signal(SIGINT);
  EXPECT_EQ(living.Finish().exit_code, 130);
  EXPECT_THAT(RunDirectories(folder), IsEmpty());
}

TEST(GantryResume, CleanLeavesOtherMachinesAloneAndNamesThem) {
  const ProgramFolder folder("elsewhere");
  const std::string run = "gantry-7-0123456789abcdef";
  std::filesystem::create_directory(folder.path() + "/" + run);
  folder.Write(run + "/lock",
               "pid 7 host worker-9.example boot 0-0 started 2026-01-01T00:00:00Z\n");
  const ProgramResult result = folder.Run({"clean", ".", "none"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out,
              MatchesRegex("left \\./gantry-7-0123456789abcdef: started [0-9]+h[0-9]+m ago "
                           "as process 7 on worker-9.example; clean it there\n"));
  EXPECT_EQ(result.err,
            "gantry: error: spill directory 'none' does not exist: create it or name "
            "another one\n");
  EXPECT_EQ(RunDirectories(folder).size(), 1u);
  const ProgramResult train = RunProgram(folder.Train({"--spill_dirs=."}));
  EXPECT_EQ(train.exit_code, 0) << train.err;
  EXPECT_THAT(train.err, Not(HasSubstr("gantry clean"))) << "there is nothing to do about it here";
}

INSTANTIATE_TEST_SUITE_P(
    GantryResume, GantryKilledTest,
    ::testing::Values(std::vector<std::string>{}, std::vector<std::string>{"--kind=lion"},
                      std::vector<std::string>{"--kind=adam", "--state_format=eight_bit"},
                      std::vector<std::string>{"--state_format=split_master"},
                      std::vector<std::string>{"--kind=adafactor"},
                      std::vector<std::string>{"--update_order=speculative"}),
    [](const auto& info) { return "case" + std::to_string(info.index); });

TEST(GantryResume, CtrlCSavesAndSaysHowToResume) {
  // A second or so: the signal comes before the end on a busy machine too.
  constexpr char kManySteps[] = "--steps=1500";
  for (const int number : {SIGINT, SIGTERM}) {
    SCOPED_TRACE(number);
    const ProgramFolder folder("interrupt");
    const std::vector<std::string> more = {"--json", "--checkpoint_dir=c", "--checkpoint_every=0",
                                           kManySteps};
    const ProgramResult whole = RunProgram(folder.Train({"--json", kManySteps}));
    ASSERT_EQ(whole.exit_code, 0) << whole.err;

    Program program(folder.Train(more));
    ASSERT_TRUE(program.WaitForLine("step 2/1500").has_value());
    program.Signal(number);
    const ProgramResult stopped = program.Finish();
    ASSERT_EQ(stopped.exit_code, 130) << stopped.err;
    EXPECT_EQ(JsonValue(stopped.out, "stopped"), "true");
    EXPECT_THAT(stopped.err, HasSubstr("gantry: stopping at the end of this step"));
    EXPECT_THAT(stopped.err, HasSubstr("the same command resumes there"));
    const std::string steps = JsonValue(stopped.out, "steps");
    EXPECT_LT(std::stoll(steps), 1500);

    const ProgramResult resumed = RunProgram(folder.Train(more));
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(JsonValue(resumed.out, "first_step"), steps);
    EXPECT_EQ(JsonValue(resumed.out, "parameter_hash"), JsonValue(whole.out, "parameter_hash"));
  }
}

TEST(GantryResume, CtrlCWithoutAFolderSaysThatNothingWasSaved) {
  const ProgramFolder folder("nowhere");
  Program program(folder.Train({}));
  ASSERT_TRUE(program.WaitForLine("step 1/12").has_value());
  program.Signal(SIGINT);
  const ProgramResult stopped = program.Finish();
  EXPECT_EQ(stopped.exit_code, 130);
  EXPECT_THAT(stopped.err, HasSubstr("nothing was saved, as train.checkpoint_dir is not set"));
}

TEST(GantryResume, TwoRunsShareASpillFolderButNotACheckpointFolder) {
  const ProgramFolder folder("shared");
  const ProgramOptions first =
      folder.Train(With(kTight, {"--checkpoint_dir=a", "--steps=100000", "--checkpoint_every=0"}));
  Program running(first);
  ASSERT_TRUE(running.WaitForLine("step 1/").has_value());
  const ProgramResult other = RunProgram(folder.Train(With(kTight, {"--checkpoint_dir=b"})));
  EXPECT_EQ(other.exit_code, 0) << other.err;
  const ProgramResult clash = RunProgram(folder.Train({"--checkpoint_dir=a"}));
  EXPECT_EQ(clash.exit_code, 1);
  EXPECT_THAT(clash.err, HasSubstr("gantry: error: another run writes its checkpoints to a"));
  running.Signal(SIGINT);
  EXPECT_EQ(running.Finish().exit_code, 130);
}

}  // namespace
}  // namespace gantry
