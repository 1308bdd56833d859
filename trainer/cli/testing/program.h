// Runs the built gantry program as a child, for tests: to its end, or line by line with signals.
// Thread-compatible.
#ifndef GANTRY_TRAINER_CLI_TESTING_PROGRAM_H_
#define GANTRY_TRAINER_CLI_TESTING_PROGRAM_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"

namespace gantry {

struct ProgramResult {
  int exit_code = -1;  // -1 when a signal ended it
  int signal = 0;
  std::string out;
  std::string err;
};

// Whether root may read and write what permissions forbid.
enum class FilePrivileges { kKept, kDropped };
// Whether kDropped has an effect: not as root in every container.
bool CanDropFilePrivileges();

enum class ErrorOutput { kPipe, kTerminal };

struct ProgramOptions {
  std::vector<std::string> arguments;
  std::string folder;          // where it runs
  int64_t file_bytes_max = 0;  // RLIMIT_FSIZE; 0: none
  ErrorOutput error_output = ErrorOutput::kPipe;
  FilePrivileges privileges = FilePrivileges::kKept;
  // Words before those of the program, the first of them found in PATH: "strace", "-f".
  std::vector<std::string> launcher = {};
};

// A running child. Killed by the destructor when it still runs.
class Program {
 public:
  // Aborts when the child cannot be made.
  explicit Program(const ProgramOptions& options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Blocks until a line of its standard error holds `text`; nothing when it ended before. Returns
  // that line.
  std::optional<std::string> WaitForLine(const std::string& text);
  void Signal(int number) const;
  // Waits for the end. Standard output must fit a pipe.
  ProgramResult Finish();

 private:
  // Appends more of standard error; false at its end.
  bool ReadMore();

  pid_t pid_ = -1;
  FileDescriptor out_;
  FileDescriptor err_;
  std::string err_text_;
  size_t seen_ = 0;  // of err_text_, by WaitForLine
};

ProgramResult RunProgram(const ProgramOptions& options);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_TESTING_PROGRAM_H_
