#include "base/process_resources.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "absl/status/status.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr char kDescriptors[] = "/proc/self/fd";
constexpr char kStatus[] = "/proc/self/status";

absl::StatusOr<std::vector<std::string>> NamesIn(FileCalls& files, const std::string& path) {
  GANTRY_ASSIGN_OR_RETURN(const FileDescriptor folder,
                          OpenFile(files, path, O_RDONLY | O_DIRECTORY, 0));
  return ListNames(files, {folder.get(), path});
}

bool IsOfTheSystem(std::string_view target) {
  return target.starts_with("/dev/") || target.starts_with("/proc/") || target.starts_with("/sys/");
}

// Of a line like "VmLck:      64 kB"; nothing where the kernel has none.
Bytes Kilobytes(std::string_view status, std::string_view key) {
  const size_t at = status.find(key);
  if (at == std::string_view::npos) return Bytes(0);
  return Bytes(1024) * std::atoll(std::string(status.substr(at + key.size(), 32)).c_str());
}

}  // namespace

absl::StatusOr<ProcessResources> ProcessResources::Take(FileCalls& files,
                                                        std::span<const WatchedFolder> folders) {
  ProcessResources taken;
  GANTRY_ASSIGN_OR_RETURN(const std::vector<std::string> open, NamesIn(files, kDescriptors));
  for (const std::string& number : open) {
    std::array<char, PATH_MAX> target{};
    const ssize_t size =
        readlink(StrCat(kDescriptors, "/", number).c_str(), target.data(), target.size());
    if (size < 0) continue;  // closed by now, as those that list are
    std::string text(target.data(), static_cast<size_t>(size));
    if (!IsOfTheSystem(text)) taken.descriptors.emplace(std::atoi(number.c_str()), std::move(text));
  }
  GANTRY_ASSIGN_OR_RETURN(const std::string status, ReadFileToString(files, kStatus, 1_MiB));
  taken.locked = Kilobytes(status, "\nVmLck:");
  taken.pinned = Kilobytes(status, "\nVmPin:");
  for (const WatchedFolder& folder : folders) {
    const auto names = NamesIn(files, folder.path);
    if (absl::IsNotFound(names.status())) continue;
    GANTRY_RETURN_IF_ERROR(names.status());
    for (const std::string& name : *names) {
      if (name.starts_with(folder.prefix)) taken.files.insert(StrCat(folder.path, "/", name));
    }
  }
  return taken;
}

std::vector<std::string> LeftBehind(const ProcessResources& before, const ProcessResources& after) {
  std::set<std::string> known;
  for (const auto& [number, target] : before.descriptors) known.insert(target);
  std::vector<std::string> left;
  for (const auto& [number, target] : after.descriptors) {
    if (!known.contains(target)) left.push_back(StrCat("descriptor ", number, " of ", target));
  }
  for (const std::string& file : after.files) {
    if (!before.files.contains(file)) left.push_back(file);
  }
  if (after.locked > before.locked) {
    left.push_back(StrCat(after.locked - before.locked, " of locked memory"));
  }
  if (after.pinned > before.pinned) {
    left.push_back(StrCat(after.pinned - before.pinned, " of pinned memory"));
  }
  return left;
}

}  // namespace gantry
