#include "trainer/cli/arguments.h"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/booster/run_config.h"
#include "trainer/cli/config.h"

namespace gantry {
namespace {

Option ParseOption(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return {.name = std::string(text), .value = std::nullopt};
  return {.name = std::string(text.substr(0, equals)),
          .value = std::string(text.substr(equals + 1))};
}

// Removes the options of that name and returns the last.
std::optional<Option> Take(Arguments& arguments, std::string_view name) {
  std::optional<Option> taken;
  std::erase_if(arguments.options, [&](const Option& option) {
    if (option.name != name) return false;
    taken = option;
    return true;
  });
  return taken;
}

}  // namespace

absl::StatusOr<Arguments> ParseArguments(std::span<const char* const> words) {
  Arguments arguments;
  bool options_end = false;
  for (const std::string_view word : words) {
    if (!options_end && word == "--") {
      options_end = true;
    } else if (!options_end && (word == "-h" || word == "--help")) {
      arguments.options.push_back({.name = "help", .value = std::nullopt});
    } else if (!options_end && word.starts_with("--")) {
      arguments.options.push_back(ParseOption(word.substr(2)));
    } else if (!options_end && word.size() > 1 && word[0] == '-') {
      return InvalidArgument("unknown option '", word, "': options begin with two dashes");
    } else if (arguments.command.empty()) {
      arguments.command = word;
    } else {
      arguments.words.emplace_back(word);
    }
  }
  return arguments;
}

absl::StatusOr<bool> TakeFlag(Arguments& arguments, std::string_view name) {
  const std::optional<Option> option = Take(arguments, name);
  if (!option.has_value()) return false;
  if (option->value.has_value()) return InvalidArgument("--", name, " takes no value");
  return true;
}

absl::StatusOr<std::optional<std::string>> TakeValue(Arguments& arguments, std::string_view name) {
  std::optional<Option> option = Take(arguments, name);
  if (!option.has_value()) return std::optional<std::string>();
  if (option->value.value_or("").empty()) {
    return InvalidArgument("--", name, " needs a value, as in --", name, "=...");
  }
  return std::move(option->value);
}

absl::Status ApplyOverrides(const Arguments& arguments, RunConfig& config) {
  for (const Option& option : arguments.options) {
    GANTRY_RETURN_IF_ERROR(ApplyOverride(option.name, option.value, config));
  }
  return absl::OkStatus();
}

absl::Status ExpectNothingElse(const Arguments& arguments) {
  if (!arguments.words.empty()) {
    return InvalidArgument("'", arguments.words[0], "' is one word too many");
  }
  if (!arguments.options.empty()) {
    return InvalidArgument("unknown option '--", arguments.options[0].name, "'");
  }
  return absl::OkStatus();
}

}  // namespace gantry
