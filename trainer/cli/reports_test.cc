#include "trainer/cli/reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/testing/status_matchers.h"
#include "gemini/parameter_store.h"
#include "trainer/booster/metrics.h"
#include "trainer/cli/console.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;

constexpr Nanoseconds kSecond = 1'000'000'000;

StepMetrics Metrics(int64_t step) {
  return {.step = step,
          .steps = 8,
          .loss = 2.5,
          .learning_rate = 0.001,
          .gradient_norm = 3.0,
          .outcome = StepResult::Outcome::kUpdated,
          .tokens = 1000,
          .duration = 2 * kSecond,
          .stall = kSecond / 2,
          .tier_bytes = {128_MiB, 512_MiB, 3_GiB}};
}

// What a console writes to standard error.
class Captured {
 public:
  explicit Captured(Console::Progress progress)
      : file_(open_memstream(&text_, &size_)),
        console_(std::make_unique<Console>(
            Console::Options{.out = file_, .err = file_, .progress = progress})) {}
  ~Captured() {
    console_.reset();
    fclose(file_);
    free(text_);
  }
  Console* console() { return console_.get(); }
  std::string Text() {
    fflush(file_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  FILE* file_;
  std::unique_ptr<Console> console_;
};

TEST(Reports, DurationsAreShort) {
  EXPECT_EQ(DurationText(0), "0s");
  EXPECT_EQ(DurationText(kSecond * 59), "59s");
  EXPECT_EQ(DurationText(kSecond * 60), "1m00s");
  EXPECT_EQ(DurationText(kSecond * 187), "3m07s");
  EXPECT_EQ(DurationText(kSecond * 3720), "1h02m");
  EXPECT_EQ(DurationText(kSecond * 360000), "100h00m");
}

TEST(Reports, AStepInOneLine) {
  EXPECT_EQ(StepText(Metrics(3)),
            "step 3/8  loss 2.5000  500 tokens/s  stall 25%  device 128.0 MiB  host 512.0 MiB  "
            "file 3.0 GiB");
  StepMetrics skipped = Metrics(3);
  skipped.tier_bytes = {1_MiB, 0_B, 0_B};
  skipped.outcome = StepResult::Outcome::kSkippedNonFinite;
  skipped.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(StepText(skipped),
            "step 3/8  loss nan  500 tokens/s  stall 25%  device 1.0 MiB  SKIPPED: the gradient is "
            "not finite");
}

TEST(Reports, LinesWhereThereIsNoTerminal) {
  Captured captured(Console::Progress::kLines);
  ProgressReporter reporter({.console = captured.console(), .log_every = 3, .label = "a: "});
  reporter.OnStart({.parameters = 3'082'496,
                    .first_step = 4,
                    .steps = 8,
                    .tokens_per_step = 1000,
                    .resumed_from = "c/step-00000004"});
  for (const int64_t step : {5, 6, 7, 8}) reporter.OnStep(Metrics(step));
  reporter.OnEvaluation({.step = 8, .loss = 2.25, .tokens = 10});
  reporter.OnCheckpoint({.step = 8, .path = "c/step-00000008", .duration = kSecond * 3 / 2});
  EXPECT_EQ(captured.Text(),
            "a: 3.08 million parameters, 1000 tokens a step, 8 steps; resumed after step 4 from "
            "c/step-00000004\n"
            "a: " +
                StepText(Metrics(5)) + "  left 6s\na: " + StepText(Metrics(6)) +
                "  left 4s\na: " + StepText(Metrics(8)) +
                "  left 0s\n"
                "a: step 8  validation loss 2.2500  perplexity 9.49\n"
                "a: step 8  saved c/step-00000008 in 1.5 s\n");
}

TEST(Reports, ABarThatLinesPushAside) {
  Captured captured(Console::Progress::kBar);
  ProgressReporter reporter({.console = captured.console(), .log_every = 1, .label = ""});
  reporter.OnStep(Metrics(4));
  EXPECT_THAT(captured.Text(), HasSubstr("\r[########........] step 4/8  loss 2.5000"));
  ConsoleLogger(captured.console()).Warning("two\nlines");
  EXPECT_THAT(captured.Text(), HasSubstr("\x1b[K\r\x1b[Kgantry: warning: two lines\n"));
  reporter.OnStep(Metrics(8));
  captured.console()->Out("result\n");
  EXPECT_THAT(captured.Text(), HasSubstr("\x1b[K\r\x1b[Kresult\n"));
}

TEST(Reports, TheLogIsJsonLinesAndAppends) {
  PosixFileCalls files;
  const std::string path = ::testing::TempDir() + "log.jsonl";
  remove(path.c_str());
  for (const int64_t step : {1, 2}) {
    const auto log = JsonLog::Open(&files, path);
    ASSERT_THAT(log, IsOk());
    StepMetrics metrics = Metrics(step);
    if (step == 2) metrics.loss = std::numeric_limits<double>::infinity();
    (*log)->OnStep(metrics);
    EXPECT_THAT((*log)->status(), IsOk());
  }
  const std::string text = *ReadFileToString(files, path, 1_MiB);
  EXPECT_THAT(text, HasSubstr("{\"event\":\"step\",\"step\":1,\"loss\":2.5,"));
  EXPECT_THAT(text, HasSubstr("\"stall_share\":0.25,\"device_bytes\":134217728,"));
  EXPECT_THAT(text, HasSubstr("}\n{\"event\":\"step\",\"step\":2,\"loss\":null,"));
}

TEST(Reports, ALogOnAFullDiskIsAnError) {
  PosixFileCalls files;
  const auto log = JsonLog::Open(&files, "/dev/full");
  ASSERT_THAT(log, IsOk());
  (*log)->OnStep(Metrics(1));
  EXPECT_THAT((*log)->status(), StatusIs(absl::StatusCode::kResourceExhausted, "/dev/full"));
  EXPECT_THAT(JsonLog::Open(&files, "/none/log"), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace gantry
