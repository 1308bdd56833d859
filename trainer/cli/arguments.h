// The words of a command line: `gantry COMMAND [WORD | --option | --option=value] ...`.
// Commands take the options they know; what is left are overrides of the config.
// Plain data; stateless functions.
#ifndef GANTRY_TRAINER_CLI_ARGUMENTS_H_
#define GANTRY_TRAINER_CLI_ARGUMENTS_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/booster/run_config.h"

namespace gantry {

struct Option {
  std::string name;  // without the dashes
  std::optional<std::string> value;
};

struct Arguments {
  std::string command;             // empty when there is none
  std::vector<std::string> words;  // not options, in order
  std::vector<Option> options;     // in order
};

// `words` are argv without the program's name. "-h" and "--help" anywhere are option "help"; behind
// a "--" nothing is an option. Errors: kInvalidArgument for any other single-dash option.
absl::StatusOr<Arguments> ParseArguments(std::span<const char* const> words);

// Removes the options of that name and tells whether there was one. Errors: kInvalidArgument when
// it has a value.
absl::StatusOr<bool> TakeFlag(Arguments& arguments, std::string_view name);
// Removes the options of that name and returns the last one's value, if any. Errors:
// kInvalidArgument when it has no value or an empty one.
absl::StatusOr<std::optional<std::string>> TakeValue(Arguments& arguments, std::string_view name);
// Every option left must be a config key. Errors: as ApplyOverride.
absl::Status ApplyOverrides(const Arguments& arguments, RunConfig& config);
// Errors: kInvalidArgument naming the first surplus word or option.
absl::Status ExpectNothingElse(const Arguments& arguments);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_ARGUMENTS_H_
