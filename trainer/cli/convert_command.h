// `gantry convert SOURCE FOLDER`: a checkpoint or a model's folder as a Hugging Face folder.
#ifndef GANTRY_TRAINER_CLI_CONVERT_COMMAND_H_
#define GANTRY_TRAINER_CLI_CONVERT_COMMAND_H_

#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"

namespace gantry {

CommandResult ConvertCommand(Arguments arguments, const CommandContext& context);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_CONVERT_COMMAND_H_
