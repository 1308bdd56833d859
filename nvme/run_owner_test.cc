#include "nvme/run_owner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/file_calls.h"
#include "base/testing/faulty_file_calls.h"

namespace gantry {
namespace {

const char* const kLine = "pid 4711 host worker-3 boot 6f1c-0d1e started 2026-11-30T17:17:33Z\n";

TEST(RunOwnerTest, IsOneReadableLine) {
  const RunOwner owner{.pid = 4711, .host = "worker-3", .boot = "6f1c-0d1e", .started = 1796059053};
  EXPECT_EQ(owner.ToLine(), kLine);
  EXPECT_EQ(RunOwner::Parse(kLine), owner);
}

TEST(RunOwnerTest, DescribesThisProcess) {
  PosixFileCalls files;
  const RunOwner owner = RunOwner::Current(files);
  EXPECT_EQ(owner.pid, getpid());
  EXPECT_EQ(owner.boot.size(), 36u) << owner.boot;
  EXPECT_GT(owner.started, 1700000000);
  EXPECT_EQ(RunOwner::Parse(owner.ToLine()), owner);
  EXPECT_TRUE(owner.OnSameMachineAs(RunOwner::Current(files)));
}

TEST(RunOwnerTest, WhatTheKernelDoesNotTellIsUnknown) {
  PosixFileCalls posix;
  FaultyFileCalls files(&posix);
  files.Inject({.kind = FileCallKind::kRead, .first = 0}, FailCall{EIO});
  const RunOwner owner = RunOwner::Current(files);
  EXPECT_EQ(owner.boot, "?");
  EXPECT_EQ(RunOwner::Parse(owner.ToLine()), owner);
}

TEST(RunOwnerTest, RefusesEverythingElse) {
  const std::string line = kLine;
  for (size_t size = 0; size < line.size(); ++size) {
    EXPECT_FALSE(RunOwner::Parse(line.substr(0, size)).has_value()) << size;
  }
  for (const char* text :
       {"", "\n", "12 host\n", "pid 0 host a boot b started 2026-11-30T17:17:33Z\n",
        "pid -1 host a boot b started 2026-11-30T17:17:33Z\n",
        "pid 1x host a boot b started 2026-11-30T17:17:33Z\n",
        "pid 1 host a boot b started 2026-13-30T17:17:33Z\n",
        "pid 1 host a boot b started 2026-11-30T17:17:33Z \n",
        "pid 1 host a boot b started 2026-11-30T17:17:33Z\nmore",
        "pid 1 host a b boot c started 2026-11-30T17:17:33Z\n",
        "pid 1 host \x1b[31mred boot b started 2026-11-30T17:17:33Z\n",
        "pid 1 host a boot \a started 2026-11-30T17:17:33Z\n",
        "PID 1 host a boot b started 2026-11-30T17:17:33Z\n"}) {
    EXPECT_FALSE(RunOwner::Parse(text).has_value()) << text;
  }
  EXPECT_FALSE(RunOwner::Parse(line + line).has_value());
}

// They are printed to terminals.
TEST(RunOwnerTest, RefusesNamesThatToLineWouldNotWrite) {
  for (const std::string name : {"\033[31mred", "bell\007", "a/b", "a\"b", "\303\244"}) {
    EXPECT_FALSE(RunOwner::Parse("pid 7 host " + name + " boot b started 2026-01-01T00:00:00Z\n"))
        << name;
    EXPECT_FALSE(RunOwner::Parse("pid 7 host h boot " + name + " started 2026-01-01T00:00:00Z\n"))
        << name;
  }
}

TEST(RunOwnerTest, OneBootOrOneNameIsOneMachine) {
  const RunOwner a{.pid = 1, .host = "a", .boot = "x", .started = 0};
  EXPECT_TRUE(a.OnSameMachineAs({.pid = 2, .host = "a", .boot = "y", .started = 9}));
  EXPECT_TRUE(a.OnSameMachineAs({.pid = 2, .host = "container", .boot = "x", .started = 9}));
  EXPECT_FALSE(a.OnSameMachineAs({.pid = 1, .host = "b", .boot = "y", .started = 0}));
  const RunOwner unknown{.pid = 1, .host = "?", .boot = "?", .started = 0};
  EXPECT_FALSE(unknown.OnSameMachineAs(unknown));
}

}  // namespace
}  // namespace gantry
