// gantry clean: removing what dead runs left.
#ifndef GANTRY_TRAINER_CLI_CLEAN_COMMAND_H_
#define GANTRY_TRAINER_CLI_CLEAN_COMMAND_H_

#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"

namespace gantry {

// `gantry clean [FOLDER ...] [--config=FILE] [--dry-run] [--json]`: removes the spill directories
// of runs that died. Those of runs that live are not touched, nor those of another machine.
CommandResult CleanCommand(Arguments arguments, const CommandContext& context);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_CLEAN_COMMAND_H_
