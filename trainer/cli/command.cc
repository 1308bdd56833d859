#include "trainer/cli/command.h"

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/booster/run_config.h"
#include "trainer/cli/arguments.h"
#include "trainer/cli/config.h"

namespace gantry {

absl::StatusOr<OutputFormat> TakeOutputFormat(Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(const bool json, TakeFlag(arguments, "json"));
  return json ? OutputFormat::kJson : OutputFormat::kText;
}

absl::StatusOr<RunConfig> TakeConfig(FileCalls& files, Arguments& arguments, RunConfig defaults) {
  RunConfig config = std::move(defaults);
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> file, TakeValue(arguments, "config"));
  if (file.has_value()) arguments.words.insert(arguments.words.begin(), *file);
  if (arguments.words.size() > 1) {
    return InvalidArgument("'", arguments.words[1], "' is one word too many: give one config file");
  }
  if (!arguments.words.empty()) {
    GANTRY_RETURN_IF_ERROR(ApplyConfigFile(files, arguments.words[0], config));
    arguments.words.clear();
  }
  GANTRY_RETURN_IF_ERROR(ApplyOverrides(arguments, config));
  arguments.options.clear();
  return config;
}

absl::Status MakeParentDirectories(FileCalls& files, const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? absl::OkStatus() : MakeDirectories(files, parent);
}

}  // namespace gantry
