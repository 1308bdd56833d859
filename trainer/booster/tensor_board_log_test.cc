#include "trainer/booster/tensor_board_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/testing/status_matchers.h"
#include "gemini/parameter_store.h"
#include "trainer/booster/metrics.h"
#include "trainer/logging/testing/event_reader.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::SizeIs;

StepMetrics Step(int64_t step) {
  return {.step = step,
          .steps = 8,
          .loss = 2.5,
          .learning_rate = 0.25,
          .gradient_norm = 3.0,
          .outcome = StepResult::Outcome::kUpdated,
          .tokens = 1000,
          .duration = 2'000'000'000,
          .stall = 500'000'000,
          .tier_bytes = {1_KiB, 2_KiB, 3_KiB}};
}

class TensorBoardLogTest : public ::testing::Test {
 protected:
  TensorBoardLogTest() : folder_(::testing::TempDir() + "tensor_board_log_test") {
    std::filesystem::remove_all(folder_);
  }

  TensorBoardLog Log() {
    return TensorBoardLog({.files = &files_,
                           .wall_clock = &clock_,
                           .directory = folder_,
                           .host = "node1",
                           .process = 1,
                           .settings = "train:\n  steps: 8\n"});
  }
  // Of all files, in the order of their names.
  std::vector<ReadEvent> Events() {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    std::vector<ReadEvent> all;
    for (const std::string& path : paths) {
      const absl::StatusOr<std::string> content = ReadFileToString(files_, path, 1_MiB);
      EXPECT_THAT(content, IsOk());
      const absl::StatusOr<std::vector<ReadEvent>> events = ReadEvents(content.value_or(""));
      EXPECT_THAT(events, IsOk());
      if (events.ok()) all.insert(all.end(), events->begin(), events->end());
    }
    return all;
  }

  PosixFileCalls files_;
  VirtualClock clock_;
  std::string folder_;
};

TEST_F(TensorBoardLogTest, TellsOfStepsEvaluationsAndSettings) {
  TensorBoardLog log = Log();
  log.OnStart({.parameters = 1, .first_step = 0, .steps = 8, .tokens_per_step = 1000});
  log.OnStep(Step(1));
  log.OnEvaluation({.step = 1, .loss = 1.0, .tokens = 10});
  log.OnCheckpoint({.step = 1, .path = "c", .duration = 1});
  EXPECT_THAT(log.Close(), IsOk());

  const std::vector<ReadEvent> events = Events();
  ASSERT_THAT(events, SizeIs(5));
  EXPECT_TRUE(events[1].restart);
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[2].step, 0);
  EXPECT_THAT(events[2].texts, ElementsAre(Pair("settings", "```\ntrain:\n  steps: 8\n```\n")));
  EXPECT_EQ(events[3].step, 1);
  EXPECT_THAT(events[3].scalars,
              ElementsAre(Pair("memory/device_bytes", 1024), Pair("memory/file_bytes", 3072),
                          Pair("memory/host_bytes", 2048), Pair("speed/stall_share", 0.25F),
                          Pair("speed/tokens_per_second", 500), Pair("train/gradient_norm", 3),
                          Pair("train/learning_rate", 0.25F), Pair("train/loss", 2.5F),
                          Pair("train/skipped", 0)));
  EXPECT_THAT(events[4].scalars,
              ElementsAre(Pair("validation/loss", 1.0F),
                          Pair("validation/perplexity", static_cast<float>(std::exp(1.0)))));
}

TEST_F(TensorBoardLogTest, SkippedStepsAndLossScalesShow) {
  TensorBoardLog log = Log();
  log.OnStart({.parameters = 1, .first_step = 0, .steps = 8, .tokens_per_step = 1000});
  StepMetrics step = Step(1);
  step.outcome = StepResult::Outcome::kSkippedNonFinite;
  step.loss = std::numeric_limits<double>::quiet_NaN();
  step.loss_scale = 65536.0;
  log.OnStep(step);
  EXPECT_THAT(log.Close(), IsOk());
  const std::vector<ReadEvent> events = Events();
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[3].scalars.at("train/skipped"), 1.0F);
  EXPECT_EQ(events[3].scalars.at("train/loss_scale"), 65536.0F);
  EXPECT_TRUE(std::isnan(events[3].scalars.at("train/loss")));
}

TEST_F(TensorBoardLogTest, ResumedRunBeginsBehindItsCheckpoint) {
  for (const int64_t first : {0, 3}) {
    TensorBoardLog log = Log();
    log.OnStart({.parameters = 1, .first_step = first, .steps = 8, .tokens_per_step = 1000});
    log.OnStep(Step(first + 1));
    EXPECT_THAT(log.Close(), IsOk());
  }
  const std::vector<ReadEvent> events = Events();
  ASSERT_THAT(events, SizeIs(8));
  EXPECT_TRUE(events[5].restart);
  EXPECT_EQ(events[5].step, 4);
  EXPECT_EQ(events[6].step, 3);
  EXPECT_EQ(events[7].step, 4);
}

TEST_F(TensorBoardLogTest, ErrorsAreToldAtTheEnd) {
  std::ofstream(folder_) << "a file where the folder should be";
  TensorBoardLog log = Log();
  log.OnStart({.parameters = 1, .first_step = 0, .steps = 8, .tokens_per_step = 1000});
  log.OnStep(Step(1));
  log.OnEvaluation({.step = 1, .loss = 1.0, .tokens = 10});
  EXPECT_FALSE(log.Close().ok());
  std::filesystem::remove(folder_);
  EXPECT_THAT(Log().Close(), IsOk());  // nothing ever started
}

}  // namespace
}  // namespace gantry
