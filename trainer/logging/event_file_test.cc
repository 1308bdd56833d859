// Goal: files that TensorBoard reads in the right order, and runs that resume without a step lost
// or shown twice.
#include "trainer/logging/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/testing/faulty_file_calls.h"
#include "base/testing/status_matchers.h"
#include "trainer/logging/testing/event_reader.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::Pair;
using ::testing::SizeIs;

class EventFileTest : public ::testing::Test {
 protected:
  EventFileTest() : folder_(::testing::TempDir() + "event_file_test/runs/a") {
    std::filesystem::remove_all(folder_);
    clock_.Advance(1'700'000'000'250'000'000);
  }

  absl::StatusOr<std::unique_ptr<EventFile>> Open(int64_t first_step, FileCalls* files = nullptr) {
    return EventFile::Create({.files = files == nullptr ? &files_ : files,
                              .clock = &clock_,
                              .directory = folder_,
                              .host = "node/1",
                              .process = 4711,
                              .first_step = first_step});
  }
  // Tells of steps [first, last].
  void Run(int64_t first, int64_t last) {
    absl::StatusOr<std::unique_ptr<EventFile>> events = Open(first);
    ASSERT_THAT(events, IsOk());
    for (int64_t step = first; step <= last; ++step) {
      const std::array<ScalarPoint, 1> loss = {{{"loss", static_cast<double>(step)}}};
      ASSERT_THAT((*events)->AddScalars(step, loss), IsOk());
    }
    paths_.push_back((*events)->path());
  }
  std::vector<ReadEvent> EventsIn(const std::string& path) {
    const absl::StatusOr<std::string> content = ReadFileToString(files_, path, 1_MiB);
    EXPECT_THAT(content, IsOk());
    absl::StatusOr<std::vector<ReadEvent>> events = ReadEvents(content.value_or(""));
    EXPECT_THAT(events, IsOk());
    return events.ok() ? *std::move(events) : std::vector<ReadEvent>();
  }
  // As TensorBoard: files in the order of their names; a restart forgets what is not older. How
  // often each step is told of.
  std::map<int64_t, int> Shown() {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    std::map<int64_t, int> shown;
    for (const std::string& path : paths) {
      for (const ReadEvent& event : EventsIn(path)) {
        if (event.restart) shown.erase(shown.lower_bound(event.step), shown.end());
        if (!event.scalars.empty()) ++shown[event.step];
      }
    }
    return shown;
  }

  PosixFileCalls files_;
  VirtualClock clock_;
  std::string folder_;
  std::vector<std::string> paths_;
};

TEST_F(EventFileTest, NamesTheFileAsReadersExpect) {
  const absl::StatusOr<std::unique_ptr<EventFile>> events = Open(1);
  ASSERT_THAT(events, IsOk());
  EXPECT_EQ((*events)->path(), folder_ + "/events.out.tfevents.1700000000.node_1.4711.0");
  const std::vector<ReadEvent> read = EventsIn((*events)->path());
  ASSERT_THAT(read, SizeIs(2));
  EXPECT_EQ(read[0].file_version, "brain.Event:2");
  EXPECT_EQ(read[0].wall_time, 1'700'000'000.25);
  EXPECT_TRUE(read[1].restart);
  EXPECT_EQ(read[1].step, 1);
}

TEST_F(EventFileTest, StampsWhatIsAddedWithItsTime) {
  const absl::StatusOr<std::unique_ptr<EventFile>> events = Open(1);
  ASSERT_THAT(events, IsOk());
  clock_.Advance(500'000'000);
  ASSERT_THAT((*events)->AddText(7, {.tag = "settings", .text = "a: 1"}), IsOk());
  const std::vector<ReadEvent> read = EventsIn((*events)->path());
  ASSERT_THAT(read, SizeIs(3));
  EXPECT_EQ(read[2].wall_time, 1'700'000'000.75);
  EXPECT_EQ(read[2].step, 7);
  EXPECT_EQ(read[2].texts.at("settings"), "a: 1");
  EXPECT_THAT((*events)->Close(), IsOk());
}

// The file is not closed, as by a process that was killed.
TEST_F(EventFileTest, WhatIsAddedIsThereAtOnce) {
  const absl::StatusOr<std::unique_ptr<EventFile>> events = Open(1);
  ASSERT_THAT(events, IsOk());
  const std::array<ScalarPoint, 2> points = {{{"a", 1.0}, {"b", 2.0}}};
  ASSERT_THAT((*events)->AddScalars(1, points), IsOk());
  const std::vector<ReadEvent> read = EventsIn((*events)->path());
  ASSERT_THAT(read, SizeIs(3));
  EXPECT_THAT(read[2].scalars, ElementsAre(Pair("a", 1.0F), Pair("b", 2.0F)));
}

TEST_F(EventFileTest, ResumedRunLosesNoStepAndRepeatsNone) {
  Run(1, 7);  // died after step 7; its checkpoint was of step 5
  Run(6, 9);
  Run(10, 10);
  EXPECT_THAT(Shown(), ElementsAre(Pair(1, 1), Pair(2, 1), Pair(3, 1), Pair(4, 1), Pair(5, 1),
                                   Pair(6, 1), Pair(7, 1), Pair(8, 1), Pair(9, 1), Pair(10, 1)));
  Run(1, 2);  // from the start, into the same folder
  EXPECT_THAT(Shown(), ElementsAre(Pair(1, 1), Pair(2, 1)));
}

// Three runs within a second, then one whose clock was set back.
TEST_F(EventFileTest, NewerFilesSortBehindOlderOnesWhateverTheClockSays) {
  Run(1, 1);
  Run(1, 1);
  Run(1, 1);
  VirtualClock early;
  absl::StatusOr<std::unique_ptr<EventFile>> events = EventFile::Create({.files = &files_,
                                                                         .clock = &early,
                                                                         .directory = folder_,
                                                                         .host = "node1",
                                                                         .process = 1,
                                                                         .first_step = 0});
  ASSERT_THAT(events, IsOk());
  paths_.push_back((*events)->path());
  EXPECT_TRUE(std::is_sorted(paths_.begin(), paths_.end()));
  EXPECT_THAT(paths_.back(), EndsWith("tfevents.1700000003.node1.1.0"));
}

TEST_F(EventFileTest, OtherFilesInTheFolderDoNotMatter) {
  std::filesystem::create_directories(folder_);
  for (const char* name : {"events.out.tfevents.", "events.out.tfevents.9999999999",
                           "events.out.tfevents.99999999990.a.1.0",
                           "events.out.tfevents.-000000001.a.1.0", "notes.txt"}) {
    std::ofstream(folder_ + "/" + name) << "x";
  }
  const absl::StatusOr<std::unique_ptr<EventFile>> events = Open(1);
  ASSERT_THAT(events, IsOk());
  EXPECT_THAT((*events)->path(), EndsWith("tfevents.1700000000.node_1.4711.0"));
}

TEST_F(EventFileTest, FirstErrorOfWritingStays) {
  FaultyFileCalls faulty(&files_);
  const absl::StatusOr<std::unique_ptr<EventFile>> events = Open(1, &faulty);
  ASSERT_THAT(events, IsOk());
  faulty.Inject({.kind = FileCallKind::kWrite, .first = faulty.calls(FileCallKind::kWrite)},
                FailCall{ENOSPC});
  EXPECT_THAT((*events)->AddText(1, {.tag = "a", .text = "b"}),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT((*events)->AddText(2, {.tag = "a", .text = "b"}),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT((*events)->Close(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(EventsIn((*events)->path()), SizeIs(2));
}

TEST_F(EventFileTest, ErrorsOfOpeningAndSyncingAreTold) {
  FaultyFileCalls faulty(&files_);
  faulty.Inject({.kind = FileCallKind::kSync, .first = 0}, FailCall{EIO});
  absl::StatusOr<std::unique_ptr<EventFile>> events = Open(1, &faulty);
  ASSERT_THAT(events, IsOk());
  EXPECT_FALSE((*events)->Close().ok());
  std::filesystem::remove_all(folder_);
  std::ofstream(folder_) << "a file where the folder should be";
  EXPECT_FALSE(Open(1).ok());
  std::filesystem::remove(folder_);
}

}  // namespace
}  // namespace gantry
