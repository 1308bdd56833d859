// The program writes the trace of a training step: readable, with measured times, with or without
// names, whatever the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/trace.h"
#include "placement_policy/trace_file.h"
#include "trainer/cli/testing/program.h"
#include "trainer/cli/testing/program_folder.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Of both micro-batches, and one update for each chunk that is trained.
void ExpectTraceOfTwoMicroBatches(const Trace& trace) {
  EXPECT_EQ(trace.tokens, 2 * 4 * 16);
  EXPECT_GT(trace.slot_bytes, 0_B);
  ASSERT_GT(trace.moments.size(), 0u);
  int64_t updates = 0;
  for (const Moment& moment : trace.moments) {
    EXPECT_GT(moment.compute, 0);
    if (moment.phase == Phase::kOptimizer) ++updates;
  }
  EXPECT_EQ(updates, std::ranges::count_if(trace.chunks, [](const TraceChunk& chunk) {
              return chunk.gradient >= 0;
            }));
  EXPECT_GT(updates, 0);
  EXPECT_EQ(trace.moments[0].micro_batch, 0);
  EXPECT_EQ(std::ranges::max(trace.moments, {}, &Moment::micro_batch).micro_batch, 1);
}

TEST(GantryTrace, TrainingWritesTheTraceOfAStep) {
  const ProgramFolder folder("trace");
  for (const std::string device : {"--device=unified", "--device=emulated"}) {
    SCOPED_TRACE(device);
    const ProgramResult train =
        RunProgram(folder.Train({device, "--accumulation=2", "--trace=out/step.json"}));
    ASSERT_EQ(train.exit_code, 0) << train.err;
    EXPECT_THAT(train.err, Not(HasSubstr("warning")));
    const std::string text = folder.Read("out/step.json");
    const absl::StatusOr<Trace> trace = ParseTrace(text);
    ASSERT_THAT(trace, IsOk());
    EXPECT_EQ(FormatTrace(*trace, {}), text);
    ExpectTraceOfTwoMicroBatches(*trace);
    EXPECT_THAT(trace->names, Not(Each(StartsWith("operator "))));
  }
}

TEST(GantryTrace, NamesCanBeDropped) {
  const ProgramFolder folder("trace-names");
  const ProgramResult train = RunProgram(folder.Train({"--trace=step.json", "--trace_names=drop"}));
  ASSERT_EQ(train.exit_code, 0) << train.err;
  const absl::StatusOr<Trace> trace = ParseTrace(folder.Read("step.json"));
  ASSERT_THAT(trace, IsOk());
  EXPECT_THAT(trace->names, Each(StartsWith("operator ")));
}

TEST(GantryTrace, WithoutStepsThereAreNoTimes) {
  const ProgramFolder folder("trace-none");
  ASSERT_EQ(RunProgram(folder.Train({"--checkpoint_dir=runs"})).exit_code, 0);
  const ProgramResult again =
      RunProgram(folder.Train({"--checkpoint_dir=runs", "--trace=step.json"}));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("no step ran: 'step.json' has no compute times"));
  const absl::StatusOr<Trace> trace = ParseTrace(folder.Read("step.json"));
  ASSERT_THAT(trace, IsOk());
  for (const Moment& moment : trace->moments) EXPECT_EQ(moment.compute, 0);
}

TEST(GantryTrace, PlacesThatCannotBeWrittenFailBeforeTheRun) {
  const ProgramFolder folder("trace-locked");
  const ProgramResult train = RunProgram(folder.Train({"--trace=/proc/none/step.json"}));
  EXPECT_EQ(train.exit_code, 1);
  EXPECT_THAT(train.err, AllOf(HasSubstr("create directory /proc/none"), Not(HasSubstr("step 1"))));
}

}  // namespace
}  // namespace gantry
