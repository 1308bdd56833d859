// gantry bench: how fast the parts are on this machine, beside what they are bound by.
#ifndef GANTRY_TRAINER_CLI_BENCH_COMMAND_H_
#define GANTRY_TRAINER_CLI_BENCH_COMMAND_H_

#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"

namespace gantry {

// `gantry bench NAME [--dir=FOLDER] [--quick] ...`: runs a benchmark and prints its rows.
CommandResult BenchCommand(Arguments arguments, const CommandContext& context);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_BENCH_COMMAND_H_
