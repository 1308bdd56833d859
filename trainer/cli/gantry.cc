// The program. Every error is one line, "gantry: error: what is wrong and what to do".
#include <signal.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "base/strings.h"
#include "trainer/booster/stop_source.h"
#include "trainer/cli/arguments.h"
#include "trainer/cli/bench_command.h"
#include "trainer/cli/clean_command.h"
#include "trainer/cli/command.h"
#include "trainer/cli/console.h"
#include "trainer/cli/convert_command.h"
#include "trainer/cli/demo_command.h"
#include "trainer/cli/generate_command.h"
#include "trainer/cli/help_command.h"
#include "trainer/cli/inspect_command.h"
#include "trainer/cli/interrupt.h"
#include "trainer/cli/plan_command.h"
#include "trainer/cli/preview_command.h"
#include "trainer/cli/profile_command.h"
#include "trainer/cli/tokenize_command.h"
#include "trainer/cli/train_command.h"

namespace gantry {
namespace {

CommandResult Dispatch(Arguments arguments, const CommandContext& context) {
  const absl::StatusOr<bool> help = TakeFlag(arguments, "help");
  if (!help.ok()) return UsageError(help.status());
  const std::string command = arguments.command;
  if (*help) {
    if (!command.empty() && command != "help") arguments.words = {command};
    return HelpCommand(arguments, context);
  }
  if (command == "train") return TrainCommand(std::move(arguments), context);
  if (command == "generate") return GenerateCommand(std::move(arguments), context);
  if (command == "demo") return DemoCommand(std::move(arguments), context);
  if (command == "bench") return BenchCommand(std::move(arguments), context);
  if (command == "clean") return CleanCommand(std::move(arguments), context);
  if (command == "convert") return ConvertCommand(std::move(arguments), context);
  if (command == "inspect") return InspectCommand(std::move(arguments), context);
  if (command == "plan") return PlanCommand(std::move(arguments), context);
  if (command == "preview") return PreviewCommand(std::move(arguments), context);
  if (command == "profile") return ProfileCommand(std::move(arguments), context);
  if (command == "tokenize") return TokenizeCommand(std::move(arguments), context);
  if (command == "help") return HelpCommand(arguments, context);
  if (command == "version") return VersionCommand(std::move(arguments), context);
  if (command.empty()) {
    return UsageError(InvalidArgument("no command given; `gantry help` lists all"));
  }
  // "config" has help but is no command.
  const absl::Status unknown = HelpText(command).status();
  return UsageError(unknown.ok() ? InvalidArgument("'", command, "' is no command; `gantry help ",
                                                   command, "` explains it")
                                 : unknown);
}

int Run(std::span<const char* const> words) {
  // A file-size limit is an error of the write that meets it.
  signal(SIGXFSZ, SIG_IGN);
  Console console({.out = stdout,
                   .err = stderr,
                   .progress = isatty(STDERR_FILENO) == 1 ? Console::Progress::kBar
                                                          : Console::Progress::kLines});
  PosixFileCalls files;
  StopSource stop;
  const InterruptHandler interrupts(&stop);
  CommandResult result;
  try {
    absl::StatusOr<Arguments> arguments = ParseArguments(words);
    result = arguments.ok() ? Dispatch(*std::move(arguments),
                                       {.console = &console, .files = &files, .stop = &stop})
                            : UsageError(arguments.status());
  } catch (const std::bad_alloc&) {
    result = Failure(ResourceExhausted("the machine is out of memory: use smaller budgets"));
  }
  if (!result.status.ok()) {
    ConsoleLogger(&console).Error(FromAbsl(result.status.message()));
  }
  return result.exit_code;
}

}  // namespace
}  // namespace gantry

int main(int argc, char** argv) {
  const std::span<const char* const> words(argv, static_cast<size_t>(argc));
  return gantry::Run(words.empty() ? words : words.subspan(1));
}
