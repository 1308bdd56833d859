// gantry inspect: what a checkpoint holds.
#ifndef GANTRY_TRAINER_CLI_INSPECT_COMMAND_H_
#define GANTRY_TRAINER_CLI_INSPECT_COMMAND_H_

#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"

namespace gantry {

// `gantry inspect CHECKPOINT [--verify]`: step, settings, tensors and sizes; with --verify compares
// every byte with its checksum.
CommandResult InspectCommand(Arguments arguments, const CommandContext& context);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_INSPECT_COMMAND_H_
