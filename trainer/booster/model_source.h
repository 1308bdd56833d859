// What a run's model begins as: a shape with random weights over bytes, or a Hugging Face folder
// with its weights and tokenizer.
//
//   GANTRY_ASSIGN_OR_RETURN(const ModelSource source,
//                           OpenModelSource(files, ModelPurpose::kTraining, config));
//   ... Trainer::Create({.config = &config, .codec = source.codec(), ...})
#ifndef GANTRY_TRAINER_BOOSTER_MODEL_SOURCE_H_
#define GANTRY_TRAINER_BOOSTER_MODEL_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "gemini/parameter_store.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/text_codec.h"
#include "trainer/booster/tokenizer_codec.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/hugging_face/decoder_config_json.h"
#include "trainer/models/decoder_config.h"

namespace gantry {

// Movable; thread-compatible.
struct ModelSource {
  std::string path;                                     // empty: no folder
  std::unique_ptr<TokenizerCodec> tokenizer = nullptr;  // null: bytes
  std::unique_ptr<TextCodec> bytes = nullptr;           // null: a tokenizer
  std::vector<int32_t> end_tokens = {};                 // that the model ends its texts with
  std::string config_json = {};                         // of the whole model, for checkpoints

  const TextCodec& codec() const {
    return tokenizer != nullptr ? static_cast<const TextCodec&>(*tokenizer) : *bytes;
  }
};

// Where config.model_path is set, reads the folder's config.json into config.model (its type,
// recomputation and longest sequence stay as the config has them) and its tokenizer. Errors:
// kInvalidArgument for a shape that is set beside a path, a tokenizer with more tokens than the
// model, a sequence longer than the model's; those of reading.
absl::StatusOr<ModelSource> OpenModelSource(FileCalls& files, ModelPurpose purpose,
                                            RunConfig& config);

// Takes the model from a checkpoint's settings, where they hold a whole config.json, and the path
// of its tokenizer, unless config.model_path names another; then opens the tokenizer and compares
// it with the one of the checkpoint. Nothing where the settings hold none: the model is one of
// bytes.
absl::StatusOr<ModelSource> OpenSavedModelSource(FileCalls& files, const RunSettings& settings,
                                                 RunConfig& config);

// The model in a checkpoint's settings, as its folder had it, without what a run chooses for
// itself; none for a model of bytes. Errors: kInvalidArgument, naming the setting.
absl::StatusOr<std::optional<DecoderConfig>> SavedDecoder(const RunSettings& settings);

// What a checkpoint of the run says beside SettingsOf(config).
void AddModelSettings(const ModelSource& source, RunSettings& settings);

// Fills a sealed store with the folder's weights. REQUIRES: a path. Errors: as LoadModelFolder.
absl::Status LoadModelSource(FileCalls* files, const ModelSource& source, const RunConfig& config,
                             ParameterStore& store, Logger& logger);

// Writes the store's model as a Hugging Face folder, with the files of the one it came from.
// Errors: as SaveModelFolder.
absl::Status SaveModel(FileCalls* files, const ModelSource& source, const RunConfig& config,
                       ParameterStore& store);

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_MODEL_SOURCE_H_
