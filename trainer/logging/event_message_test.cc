#include "trainer/logging/event_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/testing/status_matchers.h"
#include "trainer/logging/testing/event_reader.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// What testdata/make_golden.py lets TensorBoard's own library write.
std::string GoldenRecords() {
  const std::array<ScalarPoint, 2> first = {{{"train/loss", 5.5}, {"zero", 0.0}}};
  const std::array<ScalarPoint, 2> second = {
      {{"nan", std::numeric_limits<double>::quiet_NaN()}, {"tiny", 1e-45}}};
  const std::string text = "größe: 1\n" + std::string(200, 'x');
  return FileVersionRecord(1.75) + RestartRecord({.wall_time = 2.5, .step = 3}) +
         ScalarsRecord({.wall_time = 3.25, .step = 3}, first) +
         ScalarsRecord({.wall_time = 1e9 + 0.5, .step = 300}, second) +
         TextRecord({.wall_time = 4.0, .step = int64_t{1} << 40},
                    {.tag = "settings", .text = text}) +
         ScalarsRecord({.wall_time = 5.0, .step = 1}, {});
}

TEST(EventMessage, BytesAreThoseOfTensorBoardsLibrary) {
  PosixFileCalls files;
  const absl::StatusOr<std::string> golden =
      ReadFileToString(files, "trainer/logging/testdata/golden.tfevents", 1_MiB);
  ASSERT_THAT(golden, IsOk());
  EXPECT_EQ(GoldenRecords(), *golden);
}

TEST(EventMessage, IsReadBack) {
  const absl::StatusOr<std::vector<ReadEvent>> events = ReadEvents(GoldenRecords());
  ASSERT_THAT(events, IsOk());
  ASSERT_THAT(*events, SizeIs(6));
  EXPECT_EQ((*events)[0].file_version, "brain.Event:2");
  EXPECT_EQ((*events)[0].wall_time, 1.75);
  EXPECT_EQ((*events)[0].step, 0);
  EXPECT_TRUE((*events)[1].restart);
  EXPECT_EQ((*events)[1].step, 3);
  EXPECT_EQ((*events)[2].scalars.at("train/loss"), 5.5F);
  EXPECT_EQ((*events)[2].scalars.at("zero"), 0.0F);
  EXPECT_TRUE(std::isnan((*events)[3].scalars.at("nan")));
  EXPECT_EQ((*events)[4].step, int64_t{1} << 40);
  EXPECT_THAT((*events)[4].texts.at("settings"), HasSubstr("größe: 1\nxx"));
  EXPECT_THAT((*events)[5].scalars, IsEmpty());
}

// Every byte of a record counts, and each cut but those between records is noticed.
TEST(EventMessage, ReaderNoticesDamageAndCuts) {
  const std::string records = GoldenRecords();
  for (size_t i = 0; i < records.size(); ++i) {
    std::string damaged = records;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_THAT(ReadEvents(damaged), StatusIs(absl::StatusCode::kDataLoss)) << "byte " << i;
  }
  const size_t first = FileVersionRecord(1.75).size();
  for (size_t i = 1; i < first; ++i) {
    EXPECT_THAT(ReadEvents(records.substr(0, i)), StatusIs(absl::StatusCode::kDataLoss));
  }
  EXPECT_THAT(ReadEvents(records.substr(0, first)), IsOk());
}

TEST(EventMessageDeathTest, StepsAreNotNegative) {
  EXPECT_DEATH(RestartRecord({.wall_time = 0.0, .step = -1}), "");
}

}  // namespace
}  // namespace gantry
