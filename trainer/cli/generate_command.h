// gantry generate: continues a text with the model of a checkpoint.
#ifndef GANTRY_TRAINER_CLI_GENERATE_COMMAND_H_
#define GANTRY_TRAINER_CLI_GENERATE_COMMAND_H_

#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"

namespace gantry {

// The model's shape comes from the checkpoint; the memory settings from the config as for training.
CommandResult GenerateCommand(Arguments arguments, const CommandContext& context);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_GENERATE_COMMAND_H_
