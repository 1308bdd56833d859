// gantry plan: what training a model on a machine would be like, without either.
#ifndef GANTRY_TRAINER_CLI_PLAN_COMMAND_H_
#define GANTRY_TRAINER_CLI_PLAN_COMMAND_H_

#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"

namespace gantry {

// `gantry plan --model=M --machine=N [--seq=N] ...`. Prints the forecast.
CommandResult PlanCommand(Arguments arguments, const CommandContext& context);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_PLAN_COMMAND_H_
