// A RunConfig from YAML and the command line, and back.
//
// Precedence, lowest first: defaults, the config file, overrides in their order.
//
//   model: {layers: 14, width: 768}
//   data:
//     files: [a.txt, b.txt]
//   memory:
//     device_memory: 128MiB
//
// Stateless functions.
#ifndef GANTRY_TRAINER_CLI_CONFIG_H_
#define GANTRY_TRAINER_CLI_CONFIG_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/file_calls.h"
#include "trainer/booster/run_config.h"
#include "trainer/checkpoint/manifest.h"

namespace gantry {

// Errors: kInvalidArgument as "name:line: key: what was expected", for an unknown key with the
// nearest one. After an error `config` is unchanged.
absl::Status ApplyYaml(std::string_view text, std::string_view name, RunConfig& config);

// The same for a file of at most kYamlBytesMax. Errors also: kInvalidArgument for a file that
// cannot be read.
absl::Status ApplyConfigFile(FileCalls& files, const std::string& path, RunConfig& config);

// One --key=value: `key` is "section.name", or a name that only one section has. Lists are
// separated by commas; a flag without a value is true. Errors: kInvalidArgument as "--key=value:
// what".
absl::Status ApplyOverride(std::string_view key, const std::optional<std::string>& value,
                           RunConfig& config);

// YAML that ApplyYaml turns into the same config.
std::string DumpYaml(const RunConfig& config);

// The settings that decide what a run computes, for its checkpoints.
RunSettings SettingsOf(const RunConfig& config);
// Takes the model's shape and types from a checkpoint's settings. Errors: kInvalidArgument for a
// checkpoint that does not describe a model of this program.
absl::Status ApplyModelSettings(const RunSettings& settings, RunConfig& config);

// All keys with their defaults, types and help.
std::string ConfigHelp();

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_CONFIG_H_
