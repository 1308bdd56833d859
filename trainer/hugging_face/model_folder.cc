#include "trainer/hugging_face/model_folder.h"

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/temporary_directory.h"
#include "placement_policy/model_config.h"
#include "trainer/hugging_face/weight_loader.h"
#include "trainer/models/families.h"
#include "trainer/safetensors/reader.h"

namespace gantry {
namespace {

constexpr Bytes kConfigBytesMax = Bytes(static_cast<int64_t>(kModelConfigBytesMax));
constexpr Bytes kCompanionBytesMax = 256_MiB;
constexpr std::string_view kCompanions[] = {
    kGenerationConfigFile,
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
};

bool Exists(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0;
}

absl::Status Annotate(const absl::Status& status, const std::string& folder) {
  return MakeStatus(status.code(), folder, ": ", FromAbsl(status.message()));
}

absl::Status WriteText(FileCalls& files, const std::string& path, std::string_view text) {
  return WriteFileAtomically(files, path, std::as_bytes(std::span(text)));
}

// Of the folder that the model came from, or made.
absl::StatusOr<std::string> ConfigText(const ModelSaving& saving) {
  if (saving.origin.empty()) return MakeConfigJson(*saving.config, saving.dtype);
  GANTRY_ASSIGN_OR_RETURN(
      const std::string text,
      ReadFileToString(*saving.files, StrCat(saving.origin, "/", kConfigFile), kConfigBytesMax));
  absl::StatusOr<std::string> changed = WithDType(text, saving.dtype);
  if (!changed.ok()) return Annotate(changed.status(), saving.origin);
  return changed;
}

}  // namespace

bool IsModelFolder(const std::string& path) { return Exists(StrCat(path, "/", kConfigFile)); }

absl::StatusOr<ModelFolder> ReadModelFolder(FileCalls& files, const std::string& path,
                                            ModelPurpose purpose) {
  ModelFolder folder{.path = path, .config = {}, .config_json = {}, .generation = {}};
  const std::string config_path = StrCat(path, "/", kConfigFile);
  absl::StatusOr<std::string> text = ReadFileToString(files, config_path, kConfigBytesMax);
  if (text.status().code() == absl::StatusCode::kNotFound) {
    return NotFound("'", path, "' is no model folder: it has no ", kConfigFile);
  }
  GANTRY_RETURN_IF_ERROR(text.status());
  folder.config_json = *std::move(text);
  absl::StatusOr<HuggingFaceConfig> config = ParseHuggingFaceConfig(folder.config_json, purpose);
  if (!config.ok()) return Annotate(config.status(), path);
  folder.config = *std::move(config);

  const std::string generation_path = StrCat(path, "/", kGenerationConfigFile);
  if (Exists(generation_path)) {
    GANTRY_ASSIGN_OR_RETURN(const std::string generation_text,
                            ReadFileToString(files, generation_path, kConfigBytesMax));
    absl::StatusOr<GenerationConfig> generation = ParseGenerationConfig(generation_text);
    if (!generation.ok()) return Annotate(generation.status(), path);
    folder.generation = *std::move(generation);
  }
  GenerationConfig& generation = folder.generation;
  if (generation.end_tokens.empty()) generation.end_tokens = folder.config.end_tokens;
  if (!generation.begin_token.has_value()) generation.begin_token = folder.config.begin_token;
  if (!generation.padding_token.has_value()) {
    generation.padding_token = folder.config.padding_token;
  }
  return folder;
}

absl::Status LoadModelFolder(FileCalls* files, const std::string& path, const DecoderConfig& config,
                             ParameterStore& store, Logger& logger) {
  GANTRY_ASSIGN_OR_RETURN(const SafetensorsReader reader, SafetensorsReader::Open(files, path));
  return LoadWeights({.reader = &reader, .config = &config, .store = &store, .logger = &logger});
}

absl::Status SaveModelFolder(const ModelSaving& saving, ParameterSource source) {
  FileCalls& files = *saving.files;
  GANTRY_ASSIGN_OR_RETURN(TemporaryDirectory folder,
                          TemporaryDirectory::Create(saving.files, saving.place));
  GANTRY_ASSIGN_OR_RETURN(const std::string config, ConfigText(saving));
  GANTRY_RETURN_IF_ERROR(WriteText(files, StrCat(folder.path(), "/", kConfigFile), config));
  if (!saving.origin.empty()) {
    GANTRY_RETURN_IF_ERROR(CopyCompanions(files, saving.origin, folder.path()));
  }
  GANTRY_RETURN_IF_ERROR(WriteWeights({.files = saving.files,
                                       .folder = folder.path(),
                                       .config = saving.config,
                                       .dtype = saving.dtype,
                                       .shard_bytes_max = saving.shard_bytes_max},
                                      source));
  return folder.Commit();
}

absl::Status CopyCompanions(FileCalls& files, const std::string& from, const std::string& to) {
  for (const std::string_view name : kCompanions) {
    const std::string path = StrCat(from, "/", name);
    if (!Exists(path)) continue;
    GANTRY_ASSIGN_OR_RETURN(const std::string content,
                            ReadFileToString(files, path, kCompanionBytesMax));
    GANTRY_RETURN_IF_ERROR(WriteText(files, StrCat(to, "/", name), content));
  }
  return absl::OkStatus();
}

}  // namespace gantry
