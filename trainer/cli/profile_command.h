// `gantry profile machine`: measures this machine and writes a machine file.
#ifndef GANTRY_TRAINER_CLI_PROFILE_COMMAND_H_
#define GANTRY_TRAINER_CLI_PROFILE_COMMAND_H_

#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"

namespace gantry {

// The text form is a table of figures, the JSON form the machine file itself.
CommandResult ProfileCommand(Arguments arguments, const CommandContext& context);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_PROFILE_COMMAND_H_
