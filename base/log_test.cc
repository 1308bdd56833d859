#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

namespace gantry {
namespace {

using ::testing::ElementsAre;

// What `logger` writes to stderr for one message of each level.
std::string StderrOf(LogLevel minimum) {
  StderrLogger logger(minimum);
  ::testing::internal::CaptureStderr();
  logger.Info("one");
  logger.Warning("two");
  logger.Error("three");
  return ::testing::internal::GetCapturedStderr();
}

TEST(LogTest, MemoryLoggerKeepsMessagesInOrder) {
  MemoryLogger logger;
  logger.Info("one");
  logger.Error("two");
  logger.Warning("one");
  EXPECT_THAT(logger.messages(), ElementsAre("info: one", "error: two", "warning: one"));
}

TEST(LogTest, MessagesStayOnOneLine) {
  MemoryLogger logger;
  logger.Info("a\nb\r\nc");
  EXPECT_THAT(logger.messages(), ElementsAre("info: a b  c"));
}

TEST(LogTest, WarnOnceDropsRepetitionsPerLogger) {
  MemoryLogger logger;
  logger.WarnOnce("a");
  logger.WarnOnce("b");
  logger.WarnOnce("a");
  logger.Warning("a");
  EXPECT_THAT(logger.messages(), ElementsAre("warning: a", "warning: b", "warning: a"));
  MemoryLogger other;
  other.WarnOnce("a");
  EXPECT_THAT(other.messages(), ElementsAre("warning: a"));
}

TEST(LogTest, StderrLoggerWritesFromItsLevelUp) {
  EXPECT_EQ(StderrOf(LogLevel::kInfo),
            "gantry: info: one\ngantry: warning: two\ngantry: error: three\n");
  EXPECT_EQ(StderrOf(LogLevel::kWarning), "gantry: warning: two\ngantry: error: three\n");
  EXPECT_EQ(StderrOf(LogLevel::kError), "gantry: error: three\n");
}

TEST(LogTest, ThreadsMayShareALogger) {
  MemoryLogger logger;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < 100; ++round) {
          logger.WarnOnce("once");
          logger.Info("each");
        }
      });
    }
  }
  const std::vector<std::string> messages = logger.messages();
  EXPECT_EQ(std::count(messages.begin(), messages.end(), "warning: once"), 1);
  EXPECT_EQ(std::count(messages.begin(), messages.end(), "info: each"), 400);
}

}  // namespace
}  // namespace gantry
