// gantry tokenize: shows what a model's tokenizer makes of a text.
#ifndef GANTRY_TRAINER_CLI_TOKENIZE_COMMAND_H_
#define GANTRY_TRAINER_CLI_TOKENIZE_COMMAND_H_

#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"

namespace gantry {

// The tokenizer is that of --model, a folder or a tokenizer.json; the text is --text or --file.
CommandResult TokenizeCommand(Arguments arguments, const CommandContext& context);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_TOKENIZE_COMMAND_H_
