#include "trainer/cli/planning_inputs.h"

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/machine_catalog.h"
#include "placement_policy/machine_file.h"
#include "placement_policy/model_config.h"
#include "placement_policy/trace_file.h"

namespace gantry {
namespace {

// Whoever writes one of these means a file.
bool LooksLikeAPath(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".json");
}

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool IsFolder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

// Parses the file; the message of every error begins with its path.
template <typename Value, typename Parse>
absl::StatusOr<Value> ParseFile(FileCalls& files, const std::string& path, Bytes bytes_max,
                                Parse parse) {
  const absl::StatusOr<std::string> text = ReadFileToString(files, path, bytes_max);
  if (!text.ok()) return InvalidArgument(FromAbsl(text.status().message()));
  absl::StatusOr<Value> value = parse(std::string_view(*text));
  if (value.ok()) return value;
  return InvalidArgument(path, ": ", FromAbsl(value.status().message()));
}

absl::StatusOr<ModelShape> UnknownModel(const std::string& name) {
  std::vector<std::string> names;
  std::string all;
  for (const std::string_view known : BuiltInModelNames()) {
    names.emplace_back(known);
    all += StrCat(all.empty() ? "" : ", ", known);
  }
  const std::string nearest = NearestName(name, names.data(), names.size());
  return InvalidArgument(
      "no file, folder or built-in model '", name, "'",
      nearest.empty() ? StrCat("; built in are ", all) : StrCat(", did you mean '", nearest, "'?"));
}

}  // namespace

absl::StatusOr<Hardware> LoadHardware(FileCalls& files, const std::string& name) {
  if (LooksLikeAPath(name) || Exists(name)) {
    return ParseFile<Hardware>(files, name, Bytes(int64_t{kMachineFileBytesMax}), ParseMachine);
  }
  return CatalogMachine(name);
}

absl::StatusOr<ModelShape> LoadModelShape(FileCalls& files, const std::string& name) {
  const absl::StatusOr<ModelShape> built_in = BuiltInModel(name);
  if (built_in.ok()) return built_in;
  if (!LooksLikeAPath(name) && !Exists(name)) return UnknownModel(name);
  const std::string path = IsFolder(name) ? name + "/config.json" : name;
  return ParseFile<ModelShape>(files, path, Bytes(int64_t{kModelConfigBytesMax}), ParseModelConfig);
}

absl::StatusOr<Trace> LoadTrace(FileCalls& files, const std::string& path) {
  return ParseFile<Trace>(files, path, Bytes(int64_t{kTraceFileBytesMax}), ParseTrace);
}

}  // namespace gantry
