// gantry preview: how a data set becomes tokens, and which of them are scored.
#ifndef GANTRY_TRAINER_CLI_PREVIEW_COMMAND_H_
#define GANTRY_TRAINER_CLI_PREVIEW_COMMAND_H_

#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"

namespace gantry {

// `gantry preview --model=DIR --data=FILE`: one example's tokens with their mask (in colour on a
// terminal, as a list with marks elsewhere) and the packing of the whole file. Options:
// help_command.
CommandResult PreviewCommand(Arguments arguments, const CommandContext& context);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_PREVIEW_COMMAND_H_
