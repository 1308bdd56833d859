#include "base/log.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/strings.h"

namespace gantry {
namespace {

std::string_view Name(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown level";
}

// "warning: text" on one line: text from outside (a file name, a peer's message) may hold a break.
std::string Line(LogLevel level, std::string_view message) {
  std::string line = StrCat(Name(level), ": ", message);
  std::replace_if(line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

}  // namespace

void Logger::WarnOnce(std::string_view message) {
  {
    MutexLock lock(once_mutex_);
    if (!warned_.emplace(message).second) return;
  }
  Warning(message);
}

void StderrLogger::Log(LogLevel level, std::string_view message) {
  if (level < minimum_) return;
  const std::string line = StrCat("gantry: ", Line(level, message), "\n");
  // One write per line, so that lines of several threads do not mix.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void MemoryLogger::Log(LogLevel level, std::string_view message) {
  MutexLock lock(mutex_);
  messages_.push_back(Line(level, message));
}

std::vector<std::string> MemoryLogger::messages() const {
  MutexLock lock(mutex_);
  return messages_;
}

}  // namespace gantry
