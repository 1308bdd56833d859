// gantry train: trains a model and keeps checkpoints.
#ifndef GANTRY_TRAINER_CLI_TRAIN_COMMAND_H_
#define GANTRY_TRAINER_CLI_TRAIN_COMMAND_H_

#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"

namespace gantry {

// Runs to the end or to a requested stop (exit code 130, with how to resume).
CommandResult TrainCommand(Arguments arguments, const CommandContext& context);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_TRAIN_COMMAND_H_
