#include "trainer/cli/clean_command.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nvme/run_directory.h"
#include "trainer/booster/run_config.h"
#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"
#include "trainer/cli/config.h"
#include "trainer/cli/console.h"
#include "trainer/cli/reports.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

enum class Effect { kRemove, kReport };

struct CleanRequest {
  std::vector<std::string> folders;
  Effect effect;
  OutputFormat format;
};

absl::StatusOr<CleanRequest> ParseRequest(FileCalls& files, Arguments arguments) {
  CleanRequest request;
  GANTRY_ASSIGN_OR_RETURN(request.format, TakeOutputFormat(arguments));
  GANTRY_ASSIGN_OR_RETURN(const bool dry_run, TakeFlag(arguments, "dry-run"));
  request.effect = dry_run ? Effect::kReport : Effect::kRemove;
  request.folders = std::exchange(arguments.words, {});
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> path, TakeValue(arguments, "config"));
  GANTRY_RETURN_IF_ERROR(ExpectNothingElse(arguments));
  if (path.has_value()) {
    RunConfig config;
    GANTRY_RETURN_IF_ERROR(ApplyConfigFile(files, *path, config));
    const std::vector<std::string>& more = config.memory.spill_dirs;
    request.folders.insert(request.folders.end(), more.begin(), more.end());
  }
  if (!request.folders.empty()) return request;
  return InvalidArgument(
      "name the folders that runs spilled to, or a config with memory.spill_dirs: gantry clean "
      "FOLDER, gantry clean --config=FILE");
}

bool IsDead(const StaleRun& run) { return run.kind == StaleRun::Kind::kDead; }

std::string CleanJson(const std::vector<StaleRun>& runs, Effect effect) {
  Json list = Json::array();
  for (const StaleRun& run : runs) {
    Json entry = {{"path", run.path},
                  {"state", IsDead(run) ? "dead" : "elsewhere"},
                  {"removed", IsDead(run) && effect == Effect::kRemove},
                  {"pid", nullptr},
                  {"host", nullptr},
                  {"age_seconds", run.age}};
    if (run.owner.has_value()) {
      entry["pid"] = run.owner->pid;
      entry["host"] = run.owner->host;
    }
    list.push_back(std::move(entry));
  }
  const Json json = {
      {"command", "clean"}, {"dry_run", effect == Effect::kReport}, {"runs", std::move(list)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string CleanText(const std::vector<StaleRun>& runs, Effect effect) {
  if (runs.empty()) return "nothing to clean\n";
  std::string text;
  for (const StaleRun& run : runs) {
    text += !IsDead(run) ? "left " : effect == Effect::kRemove ? "removed " : "would remove ";
    text += StrCat(run.path, ": started ", DurationText(run.age * 1'000'000'000), " ago");
    if (run.owner.has_value()) {
      text += StrCat(" as process ", run.owner->pid, " on ", run.owner->host);
    }
    if (!IsDead(run)) {
      text += run.owner.has_value() ? "; clean it there" : "; its lock file does not say by whom";
    }
    text += "\n";
  }
  return text;
}

}  // namespace

CommandResult CleanCommand(Arguments arguments, const CommandContext& context) {
  const absl::StatusOr<CleanRequest> request = ParseRequest(*context.files, std::move(arguments));
  if (!request.ok()) return UsageError(request.status());
  MonotonicClock clock;
  std::vector<StaleRun> runs;
  absl::Status first_error;
  for (const std::string& folder : request->folders) {
    const auto found = request->effect == Effect::kRemove
                           ? RunDirectory::CleanStale(*context.files, clock, folder)
                           : RunDirectory::FindStale(*context.files, clock, folder);
    if (found.ok()) runs.insert(runs.end(), found->begin(), found->end());
    if (first_error.ok()) first_error = found.status();
  }
  if (request->format == OutputFormat::kJson) {
    context.console->Out(CleanJson(runs, request->effect));
  } else if (first_error.ok() || !runs.empty()) {
    context.console->Out(CleanText(runs, request->effect));
  }
  return first_error.ok() ? CommandResult{} : Failure(first_error);
}

}  // namespace gantry
