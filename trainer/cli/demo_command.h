// gantry demo: trains a model of about 100 million parameters on real text under a device budget of
// 128 MiB and a host budget of 512 MiB, then once more with everything resident, and compares the
// two bit for bit.
#ifndef GANTRY_TRAINER_CLI_DEMO_COMMAND_H_
#define GANTRY_TRAINER_CLI_DEMO_COMMAND_H_

#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"

namespace gantry {

// `gantry demo [--quick] [--text=FILE[,FILE...] [FILE...]] [--out=FOLDER] [--spill_dirs=FOLDER]
// [--key=value ...]`. Writes FOLDER/summary.json; FOLDER is out/demo unless named.
CommandResult DemoCommand(Arguments arguments, const CommandContext& context);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_DEMO_COMMAND_H_
