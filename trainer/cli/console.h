// Where the program writes: results to standard output, everything about their making to standard
// error, with a progress bar in its last line where that is a terminal.
//
// Thread-safe. Does not own the files.
#ifndef GANTRY_TRAINER_CLI_CONSOLE_H_
#define GANTRY_TRAINER_CLI_CONSOLE_H_

#include <stdio.h>

#include <string_view>

#include "base/log.h"
#include "base/mutex.h"

namespace gantry {

class Console {
 public:
  enum class Progress { kBar, kLines };
  struct Options {
    FILE* out;
    FILE* err;
    Progress progress;
  };
  explicit Console(Options options) : options_(options) {}
  ~Console();  // removes the bar
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  Progress progress() const { return options_.progress; }

  void Out(std::string_view text);   // as it is
  void Line(std::string_view text);  // one line of standard error, above the bar
  // Draws or replaces the bar, cut to the terminal's width. REQUIRES: progress() is kBar.
  void Bar(std::string_view text);
  void ClearBar();

 private:
  void ClearBarLocked() GANTRY_REQUIRES(mutex_);

  const Options options_;
  Mutex mutex_;
  bool bar_shown_ GANTRY_GUARDED_BY(mutex_) = false;
};

// Logs to a console as "gantry: warning: ...".
class ConsoleLogger final : public Logger {
 public:
  explicit ConsoleLogger(Console* console) : console_(console) {}
  void Log(LogLevel level, std::string_view message) override;

 private:
  Console* const console_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_CONSOLE_H_
