// gantry bench policies: placement policies side by side on simulated steps.
#ifndef GANTRY_TRAINER_CLI_POLICIES_COMMAND_H_
#define GANTRY_TRAINER_CLI_POLICIES_COMMAND_H_

#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"

namespace gantry {

// `gantry bench policies [--trace=F] [--machine=M,...] [--models=...] ...`; `arguments` without the
// word "policies". Prints tables or rows, writes the page.
CommandResult PoliciesCommand(Arguments arguments, const CommandContext& context);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_POLICIES_COMMAND_H_
