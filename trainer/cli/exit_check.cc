#include "trainer/cli/exit_check.h"

#include <unistd.h>

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "base/strings.h"
#include "nvme/run_directory.h"

namespace gantry {
namespace {

constexpr Nanoseconds kPatience = 1'000'000'000;
constexpr Nanoseconds kPause = 20'000'000;

std::optional<ProcessResources> Look(FileCalls& files, const std::vector<WatchedFolder>& folders) {
  absl::StatusOr<ProcessResources> taken = ProcessResources::Take(files, folders);
  if (!taken.ok()) return std::nullopt;
  return *std::move(taken);
}

}  // namespace

ExitCheck::ExitCheck(Options options) : options_(std::move(options)) {
  for (const std::string& folder : options_.spill_folders) {
    folders_.push_back({.path = folder, .prefix = RunDirectory::NamePrefix(getpid())});
  }
  before_ = Look(*options_.files, folders_);
}

std::vector<std::string> ExitCheck::Finish() {
  std::vector<std::string> left;
  if (!before_.has_value()) return left;
  const Nanoseconds deadline = options_.clock->Now() + kPatience;
  while (true) {
    const std::optional<ProcessResources> after = Look(*options_.files, folders_);
    left = after.has_value() ? LeftBehind(*before_, *after) : std::vector<std::string>();
    if (left.empty() || options_.clock->Now() >= deadline) break;
    options_.clock->SleepUntil(options_.clock->Now() + kPause);
  }
  if (left.empty()) return left;
  std::string text = StrCat("the run left behind ", left[0]);
  for (size_t i = 1; i < left.size(); ++i) text += StrCat(", ", left[i]);
  options_.logger->Warning(StrCat(text, ": this is a bug, please report it"));
  return left;
}

}  // namespace gantry
