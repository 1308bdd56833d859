#include "trainer/booster/step_recorder.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> NamesOf(const RecordedStep& step) {
  std::vector<std::string> names;
  for (const RecordedSlice& slice : step.slices) names.push_back(slice.name);
  return names;
}

class CountingSink final : public TraceSink {
 public:
  void Slice(std::string_view, std::string_view, Nanoseconds, Nanoseconds) override { ++slices; }
  void Counter(std::string_view, Nanoseconds, int64_t) override { ++counters; }

  int slices = 0;
  int counters = 0;
};

TEST(StepRecorderTest, NothingBeforeAStepHasEnded) {
  StepRecorder recorder(nullptr, 10);
  recorder.Slice("lane", "a", 0, 1);
  EXPECT_FALSE(recorder.Step().has_value());
}

TEST(StepRecorderTest, OneStepIsTheOneToShow) {
  StepRecorder recorder(nullptr, 10);
  recorder.Slice("lane", "before", 0, 100);  // ends where the step begins
  recorder.Slice("lane", "into", 50, 101);
  recorder.Slice("lane", "within", 120, 180);
  recorder.EndStep(100, 200);
  const std::optional<RecordedStep> step = recorder.Step();
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(step->begin, 100);
  EXPECT_EQ(step->end, 200);
  EXPECT_THAT(NamesOf(*step), ElementsAre("into", "within"));
}

TEST(StepRecorderTest, TheLastStepButOneHasWhatEndedAfterIt) {
  StepRecorder recorder(nullptr, 10);
  recorder.EndStep(0, 100);
  recorder.Slice("lane", "first", 110, 120);
  recorder.EndStep(100, 200);
  recorder.Slice("lane", "across", 190, 210);
  recorder.Slice("lane", "second", 220, 230);
  recorder.EndStep(200, 300);
  recorder.Slice("lane", "after the run", 310, 320);
  const std::optional<RecordedStep> step = recorder.Step();
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(step->begin, 100);
  EXPECT_THAT(NamesOf(*step), ElementsAre("first", "across"));
}

TEST(StepRecorderTest, AStepKnowsTheLevelsItBeginsWith) {
  StepRecorder recorder(nullptr, 10);
  recorder.Counter("device", 10, 7);
  recorder.Counter("device", 20, 8);
  recorder.EndStep(0, 100);
  recorder.EndStep(100, 200);
  recorder.Counter("device", 250, 9);
  recorder.EndStep(200, 300);
  const std::optional<RecordedStep> step = recorder.Step();
  ASSERT_TRUE(step.has_value());
  ASSERT_THAT(step->counters, SizeIs(1));
  EXPECT_EQ(step->counters[0].value, 8);
  EXPECT_LT(step->counters[0].time, step->begin);
}

TEST(StepRecorderTest, CountsWhatItHasNoRoomFor) {
  StepRecorder recorder(nullptr, 2);
  for (int i = 0; i < 5; ++i) recorder.Slice("lane", "a", i, i + 1);
  recorder.EndStep(0, 10);
  EXPECT_THAT(recorder.Step()->slices, SizeIs(2));
  EXPECT_EQ(recorder.Step()->dropped, 3);
  recorder.Slice("lane", "a", 10, 11);  // the next step has room again
  recorder.EndStep(10, 20);
  recorder.EndStep(20, 30);
  EXPECT_THAT(recorder.Step()->slices, SizeIs(1));
  EXPECT_EQ(recorder.Step()->dropped, 0);
}

TEST(StepRecorderTest, PassesEverythingOn) {
  CountingSink next;
  StepRecorder recorder(&next, 0);
  recorder.Slice("lane", "a", 0, 1);
  recorder.Counter("device", 0, 1);
  recorder.EndStep(0, 10);
  EXPECT_EQ(next.slices, 1);
  EXPECT_EQ(next.counters, 1);
  EXPECT_THAT(recorder.Step()->slices, IsEmpty());
}

}  // namespace
}  // namespace gantry
