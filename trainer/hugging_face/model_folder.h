// A Hugging Face model folder: config.json, generation_config.json and the weights; saving one
// whole or not at all, with the tokenizer's files copied along.
//
//   GANTRY_ASSIGN_OR_RETURN(const ModelFolder folder,
//                           ReadModelFolder(files, "SmolLM2/", ModelPurpose::kTraining));
//   ... a model with folder.config.decoder, sealed ...
//   GANTRY_RETURN_IF_ERROR(LoadModelFolder(folder, config, *store, logger));
//
// Functions block; they are stateless and thread-safe.
#ifndef GANTRY_TRAINER_HUGGING_FACE_MODEL_FOLDER_H_
#define GANTRY_TRAINER_HUGGING_FACE_MODEL_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "gemini/parameter_store.h"
#include "trainer/hugging_face/decoder_config_json.h"
#include "trainer/hugging_face/generation_config.h"
#include "trainer/hugging_face/weight_writer.h"
#include "trainer/models/decoder_config.h"
#include "trainer/safetensors/writer.h"

namespace gantry {

inline constexpr char kConfigFile[] = "config.json";
inline constexpr char kGenerationConfigFile[] = "generation_config.json";

struct ModelFolder {
  std::string path;
  HuggingFaceConfig config;
  std::string config_json;  // as it is
  // Where the folder has none, or leaves tokens out: those of config.json.
  GenerationConfig generation;
};

// Whether `path` is a folder with a config.json.
bool IsModelFolder(const std::string& path);

// Reads all but the weights. Errors: kNotFound without config.json; those of parsing, with the
// path; those of reading.
absl::StatusOr<ModelFolder> ReadModelFolder(FileCalls& files, const std::string& path,
                                            ModelPurpose purpose);

// Opens the folder's weights and fills the store with them. `config` may differ from the folder's
// in parameter_dtype, recompute and max_sequence. Errors: as SafetensorsReader::Open and
// LoadWeights.
absl::Status LoadModelFolder(FileCalls* files, const std::string& path, const DecoderConfig& config,
                             ParameterStore& store, Logger& logger);

struct ModelSaving {
  FileCalls* files;
  std::string place;  // of the new folder; nothing is there, or an empty folder
  const DecoderConfig* config;
  DType dtype;
  Bytes shard_bytes_max = kShardBytesMax;
  // The folder that the model came from: its config.json is kept but for the type, and its
  // tokenizer's files and generation_config.json are copied. Empty: config.json is made.
  std::string origin;
};

// Errors: kAlreadyExists; those of reading the origin, of `source` and of writing, after which
// nothing is at the place.
absl::Status SaveModelFolder(const ModelSaving& saving, ParameterSource source);

// Copies what belongs to a model and is neither its weights nor its config.json, as far as it is
// there: the tokenizer's files, templates and generation_config.json. Errors: those of reading and
// writing; kResourceExhausted for a file above 256 MiB.
absl::Status CopyCompanions(FileCalls& files, const std::string& from, const std::string& to);

}  // namespace gantry

#endif  // GANTRY_TRAINER_HUGGING_FACE_MODEL_FOLDER_H_
