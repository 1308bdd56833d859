// Logging through an injected sink; no global state. Messages are single lines: line breaks in
// them become spaces.
//
//   logger->Warning(StrCat("io_uring refused (", reason, "), using threads"));
#ifndef GANTRY_BASE_LOG_H_
#define GANTRY_BASE_LOG_H_

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"

namespace gantry {

enum class LogLevel { kInfo, kWarning, kError };

// Thread-safe.
class Logger {
 public:
  virtual ~Logger() = default;
  virtual void Log(LogLevel level, std::string_view message) = 0;

  void Info(std::string_view message) { Log(LogLevel::kInfo, message); }
  void Warning(std::string_view message) { Log(LogLevel::kWarning, message); }
  void Error(std::string_view message) { Log(LogLevel::kError, message); }
  // Logs a warning with this text once per logger.
  void WarnOnce(std::string_view message);

 private:
  Mutex once_mutex_;
  std::set<std::string, std::less<>> warned_ GANTRY_GUARDED_BY(once_mutex_);
};

// Writes "gantry: warning: ..." to stderr, at or above a level.
class StderrLogger final : public Logger {
 public:
  explicit StderrLogger(LogLevel minimum) : minimum_(minimum) {}
  void Log(LogLevel level, std::string_view message) override;

 private:
  LogLevel minimum_;
};

// Keeps messages as "warning: ...", for tests and reports.
class MemoryLogger final : public Logger {
 public:
  void Log(LogLevel level, std::string_view message) override;
  std::vector<std::string> messages() const;

 private:
  mutable Mutex mutex_;
  std::vector<std::string> messages_ GANTRY_GUARDED_BY(mutex_);
};

}  // namespace gantry

#endif  // GANTRY_BASE_LOG_H_
