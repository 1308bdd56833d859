// gantry help and gantry version.
#ifndef GANTRY_TRAINER_CLI_HELP_COMMAND_H_
#define GANTRY_TRAINER_CLI_HELP_COMMAND_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"

namespace gantry {

// "gantry help [COMMAND | config]".
CommandResult HelpCommand(const Arguments& arguments, const CommandContext& context);
CommandResult VersionCommand(Arguments arguments, const CommandContext& context);

// The help of one command. Errors: kInvalidArgument for no such command, with the nearest.
absl::StatusOr<std::string> HelpText(std::string_view command);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_HELP_COMMAND_H_
