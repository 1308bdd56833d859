#include "trainer/cli/console.h"

#include <stdio.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr size_t kWidthUnknown = 100;

size_t WidthOf(FILE* file) {
  winsize size{};
  if (ioctl(fileno(file), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kWidthUnknown;
  return size.ws_col;
}

void Write(FILE* file, std::string_view text) {
  fwrite(text.data(), 1, text.size(), file);
  fflush(file);
}

// A message is one line.
std::string OneLine(std::string_view text) {
  std::string line(text);
  std::replace_if(line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

}  // namespace

Console::~Console() { ClearBar(); }

void Console::Out(std::string_view text) {
  MutexLock lock(mutex_);
  ClearBarLocked();
  Write(options_.out, text);
}

void Console::Line(std::string_view text) {
  MutexLock lock(mutex_);
  ClearBarLocked();
  Write(options_.err, StrCat(text, "\n"));
}

void Console::Bar(std::string_view text) {
  GANTRY_CHECK(options_.progress == Progress::kBar);
  MutexLock lock(mutex_);
  // The last column stays free: some terminals wrap when it is written.
  Write(options_.err, StrCat("\r", text.substr(0, WidthOf(options_.err) - 1), "\x1b[K"));
  bar_shown_ = true;
}

void Console::ClearBar() {
  MutexLock lock(mutex_);
  ClearBarLocked();
}

void Console::ClearBarLocked() {
  if (!bar_shown_) return;
  Write(options_.err, "\r\x1b[K");
  bar_shown_ = false;
}

void ConsoleLogger::Log(LogLevel level, std::string_view message) {
  const std::string_view kind = level == LogLevel::kError     ? "error: "
                                : level == LogLevel::kWarning ? "warning: "
                                                              : "";
  console_->Line(StrCat("gantry: ", kind, OneLine(message)));
}

}  // namespace gantry
