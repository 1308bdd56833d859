#include "trainer/booster/model_source.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "gemini/parameter_store.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/text_codec.h"
#include "trainer/booster/tokenizer_codec.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/hugging_face/decoder_config_json.h"
#include "trainer/hugging_face/model_folder.h"
#include "trainer/hugging_face/weight_writer.h"
#include "trainer/models/decoder_config.h"
#include "trainer/models/families.h"

namespace gantry {
namespace {

ModelSource ByteModel() { return {.path = "", .bytes = std::make_unique<ByteCodec>()}; }

// The shape of `read` with what a run decides for itself.
DecoderConfig Combined(const DecoderConfig& read, const DecoderConfig& run) {
  DecoderConfig combined = read;
  combined.parameter_dtype = run.parameter_dtype;
  combined.recompute = run.recompute;
  combined.max_sequence = std::min(read.max_sequence, run.max_sequence);
  return combined;
}

absl::Status CheckNoShape(const RunConfig& config) {
  DecoderConfig shape = DefaultModel();
  shape.parameter_dtype = config.model.parameter_dtype;
  shape.recompute = config.model.recompute;
  shape.max_sequence = config.model.max_sequence;
  if (shape == config.model) return absl::OkStatus();
  return InvalidArgument("model.path: the folder's config.json says what the model is; leave out ",
                         "the other keys of model, but for max_sequence");
}

absl::StatusOr<std::unique_ptr<TokenizerCodec>> OpenTokenizer(FileCalls& files,
                                                              const RunConfig& config) {
  GANTRY_ASSIGN_OR_RETURN(std::unique_ptr<TokenizerCodec> tokenizer,
                          TokenizerCodec::Load(files, config.model_path));
  if (tokenizer->vocabulary_size() <= config.model.vocabulary) return tokenizer;
  return InvalidArgument("model.path: the tokenizer of ", config.model_path, " has ",
                         tokenizer->vocabulary_size(), " tokens, its model ",
                         config.model.vocabulary);
}

}  // namespace

absl::StatusOr<ModelSource> OpenModelSource(FileCalls& files, ModelPurpose purpose,
                                            RunConfig& config) {
  if (config.model_path.empty()) return ByteModel();
  GANTRY_RETURN_IF_ERROR(CheckNoShape(config));
  GANTRY_ASSIGN_OR_RETURN(const ModelFolder folder,
                          ReadModelFolder(files, config.model_path, purpose));
  ModelSource source{.path = config.model_path};
  source.config_json = MakeConfigJson(folder.config.decoder, config.model.parameter_dtype);
  config.model = Combined(folder.config.decoder, config.model);
  GANTRY_ASSIGN_OR_RETURN(source.tokenizer, OpenTokenizer(files, config));
  source.end_tokens = folder.generation.end_tokens;
  return source;
}

absl::StatusOr<std::optional<DecoderConfig>> SavedDecoder(const RunSettings& settings) {
  const auto saved = settings.find(kModelConfigSetting);
  if (saved == settings.end()) return std::optional<DecoderConfig>();
  absl::StatusOr<HuggingFaceConfig> parsed =
      ParseHuggingFaceConfig(saved->second, ModelPurpose::kInference);
  if (parsed.ok()) return std::optional<DecoderConfig>(std::move(parsed->decoder));
  return InvalidArgument("the checkpoint's ", kModelConfigSetting, ": ",
                         FromAbsl(parsed.status().message()));
}

absl::StatusOr<ModelSource> OpenSavedModelSource(FileCalls& files, const RunSettings& settings,
                                                 RunConfig& config) {
  GANTRY_ASSIGN_OR_RETURN(const std::optional<DecoderConfig> saved, SavedDecoder(settings));
  if (!saved.has_value()) return ByteModel();
  config.model = Combined(*saved, config.model);
  if (config.model_path.empty()) {
    const auto path = settings.find(kModelPathSetting);
    if (path != settings.end()) config.model_path = path->second;
  }
  ModelSource source{.path = config.model_path};
  GANTRY_ASSIGN_OR_RETURN(source.tokenizer, OpenTokenizer(files, config));
  const auto fingerprint = settings.find(kTokenizerSetting);
  if (fingerprint != settings.end() && fingerprint->second != source.tokenizer->fingerprint()) {
    return InvalidArgument("model.path: ", config.model_path,
                           " has another tokenizer than the one ",
                           "that the checkpoint was trained with");
  }
  GANTRY_ASSIGN_OR_RETURN(const ModelFolder folder,
                          ReadModelFolder(files, config.model_path, ModelPurpose::kInference));
  source.end_tokens = folder.generation.end_tokens;
  return source;
}

void AddModelSettings(const ModelSource& source, RunSettings& settings) {
  if (source.tokenizer == nullptr) return;
  settings[kModelConfigSetting] = source.config_json;
  settings[kModelPathSetting] = source.path;
  settings[kTokenizerSetting] = source.tokenizer->fingerprint();
}

absl::Status LoadModelSource(FileCalls* files, const ModelSource& source, const RunConfig& config,
                             ParameterStore& store, Logger& logger) {
  return LoadModelFolder(files, source.path, config.model, store, logger);
}

absl::Status SaveModel(FileCalls* files, const ModelSource& source, const RunConfig& config,
                       ParameterStore& store) {
  return SaveModelFolder(
      {.files = files,
       .place = config.train.save_model,
       .config = &config.model,
       .dtype = config.model.parameter_dtype,
       .origin = source.path},
      [&](const DecoderTensor& parameter, int64_t first, std::span<float> values) {
        return ReadParameter(store, parameter.name, first, values);
      });
}

}  // namespace gantry
