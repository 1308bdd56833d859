#include "trainer/cli/run_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "gemini/parameter_store.h"
#include "trainer/booster/metrics.h"

namespace gantry {
namespace {

StepMetrics Step(int64_t step, double loss) {
  return {.step = step,
          .steps = 3,
          .loss = loss,
          .learning_rate = 0.0003,
          .gradient_norm = 2.0,
          .outcome = StepResult::Outcome::kUpdated,
          .tokens = 1000,
          .duration = 2'000'000'000,
          .stall = 500'000'000,
          .tier_bytes = {128_MiB, 0_B, 3_GiB}};
}

TEST(RunTable, HasNoTextWithoutAStep) {
  RunTable table;
  EXPECT_EQ(table.Text(), "");
  table.OnStart({.parameters = 1, .first_step = 0, .steps = 3, .tokens_per_step = 1000});
  EXPECT_EQ(table.Text(), "");
}

TEST(RunTable, ShowsFirstLastLowestHighestAndMean) {
  RunTable table;
  table.OnStep(Step(1, 4.0));
  table.OnEvaluation({.step = 1, .loss = 0.0, .tokens = 10});
  table.OnStep(Step(2, 1.0));
  table.OnStep(Step(3, 2.5));
  EXPECT_EQ(table.Text(),
            "                         first        last      lowest     highest        mean\n"
            "loss                         4         2.5           1           4         2.5\n"
            "gradient norm                2           2           2           2           2\n"
            "learning rate           0.0003      0.0003      0.0003      0.0003      0.0003\n"
            "tokens/s                   500         500         500         500         500\n"
            "waiting, %                  25          25          25          25          25\n"
            "device, MiB                128         128         128         128         128\n"
            "files, MiB                3072        3072        3072        3072        3072\n"
            "validation loss              0           0           0           0           0\n"
            "perplexity                   1           1           1           1           1\n");
}

TEST(RunTable, ValuesThatAreNoNumbersDoNotCount) {
  RunTable table;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  table.OnStep(Step(1, nan));
  EXPECT_NE(table.Text().find("loss                       nan         nan\n"), std::string::npos)
      << table.Text();
  table.OnStep(Step(2, 3.0));
  table.OnStep(Step(3, std::numeric_limits<double>::infinity()));
  EXPECT_NE(table.Text().find(
                "loss                       nan         inf           3           3           3\n"),
            std::string::npos)
      << table.Text();
}

TEST(RunTable, BeginsAnewWithARun) {
  RunTable table;
  table.OnStep(Step(1, 4.0));
  table.OnStart({.parameters = 1, .first_step = 0, .steps = 3, .tokens_per_step = 1000});
  EXPECT_EQ(table.Text(), "");
}

}  // namespace
}  // namespace gantry
