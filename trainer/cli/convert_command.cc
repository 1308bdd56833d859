#include "trainer/cli/convert_command.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/booster/model_source.h"
#include "trainer/booster/run_config.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"
#include "trainer/cli/config.h"
#include "trainer/cli/console.h"
#include "trainer/cli/inspect_model.h"
#include "trainer/hugging_face/convert_folder.h"
#include "trainer/hugging_face/decoder_config_json.h"
#include "trainer/hugging_face/model_folder.h"
#include "trainer/models/decoder_config.h"
#include "trainer/models/families.h"
#include "trainer/safetensors/writer.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

struct Request {
  std::string from;
  std::string place;
  std::optional<DType> dtype;
  Bytes shard_bytes_max = kShardBytesMax;
  std::string adapter;  // empty: none
  std::string origin;   // of a checkpoint: where tokenizer and config.json are; empty: nowhere
};

absl::StatusOr<Request> TakeRequest(Arguments& arguments) {
  Request request;
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> dtype, TakeValue(arguments, "dtype"));
  if (dtype.has_value()) {
    GANTRY_ASSIGN_OR_RETURN(request.dtype, ParseDType(*dtype));
  }
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> shard,
                          TakeValue(arguments, "max-shard-size"));
  if (shard.has_value()) {
    GANTRY_ASSIGN_OR_RETURN(request.shard_bytes_max, ParseBytes(*shard));
  }
  GANTRY_ASSIGN_OR_RETURN(std::optional<std::string> adapter, TakeValue(arguments, "merge"));
  request.adapter = std::move(adapter).value_or("");
  GANTRY_ASSIGN_OR_RETURN(std::optional<std::string> origin, TakeValue(arguments, "base"));
  request.origin = std::move(origin).value_or("");
  if (arguments.words.size() < 2) {
    return InvalidArgument("name a source and a new folder: gantry convert SOURCE FOLDER");
  }
  request.from = arguments.words[0];
  request.place = arguments.words[1];
  arguments.words.erase(arguments.words.begin(), arguments.words.begin() + 2);
  GANTRY_RETURN_IF_ERROR(ExpectNothingElse(arguments));
  return request;
}

absl::StatusOr<ConvertedFolder> ConvertModel(const Request& request,
                                             const CommandContext& context) {
  if (!request.origin.empty()) {
    return InvalidArgument("--base is for checkpoints: '", request.from,
                           "' has its own config.json and tokenizer");
  }
  return ConvertFolder({.files = context.files,
                        .from = request.from,
                        .place = request.place,
                        .dtype = request.dtype,
                        .shard_bytes_max = request.shard_bytes_max,
                        .adapter = request.adapter});
}

absl::StatusOr<DecoderConfig> SavedModel(const CheckpointManifest& manifest) {
  RunConfig config;
  GANTRY_RETURN_IF_ERROR(ApplyModelSettings(manifest.settings, config));
  GANTRY_ASSIGN_OR_RETURN(std::optional<DecoderConfig> saved, SavedDecoder(manifest.settings));
  if (!saved.has_value()) return config.model;
  saved->parameter_dtype = config.model.parameter_dtype;
  saved->recompute = config.model.recompute;
  return *std::move(saved);
}

// A folder without what a checkpoint holds beside the model, such as adapters, would be another
// model, and nobody would notice.
absl::Status CheckTensors(const CheckpointManifest& manifest, const DecoderConfig& model) {
  std::set<std::string> known;
  for (DecoderTensor& parameter : DecoderTensors(model)) known.insert(std::move(parameter.name));
  for (const TensorEntry& tensor : manifest.tensors) {
    if (known.contains(tensor.name)) continue;
    return InvalidArgument("the checkpoint holds '", tensor.name,
                           "', which is no parameter of the model: its adapters cannot be "
                           "converted");
  }
  return absl::OkStatus();
}

// The origin's config.json is kept, so it must be that of the trained model.
absl::StatusOr<bool> IsOrigin(const std::string& origin, const DecoderConfig& model,
                              const CommandContext& context) {
  GANTRY_ASSIGN_OR_RETURN(const ModelFolder folder,
                          ReadModelFolder(*context.files, origin, ModelPurpose::kInference));
  DecoderConfig config = folder.config.decoder;
  // What a run chooses for itself.
  config.parameter_dtype = model.parameter_dtype;
  config.recompute = model.recompute;
  return config == model;
}

// Where config.json and tokenizer are taken from; empty: nowhere.
absl::StatusOr<std::string> OriginOf(const Request& request, const CheckpointManifest& manifest,
                                     const DecoderConfig& model, const CommandContext& context) {
  if (!request.origin.empty()) {
    GANTRY_ASSIGN_OR_RETURN(const bool fits, IsOrigin(request.origin, model, context));
    if (fits) return request.origin;
    return InvalidArgument("--base='", request.origin,
                           "' is not the folder that the checkpoint's model came from: its "
                           "config.json describes another one");
  }
  const auto path = manifest.settings.find(kModelPathSetting);
  if (path == manifest.settings.end() || path->second.empty()) return std::string();
  const absl::StatusOr<bool> fits = IsOrigin(path->second, model, context);
  if (fits.ok() && *fits) return path->second;
  ConsoleLogger(context.console)
      .Warning(StrCat("the model came from '", path->second,
                      "', which is not there any more or has changed: config.json is made anew, "
                      "and there is no tokenizer; name the folder with --base"));
  return std::string();
}

absl::StatusOr<ConvertedFolder> ConvertCheckpoint(const Request& request,
                                                  const CommandContext& context) {
  if (!request.adapter.empty()) {
    return InvalidArgument("--merge is for model folders: convert the checkpoint first");
  }
  GANTRY_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                          Checkpoint::Open(context.files, request.from));
  const CheckpointManifest& manifest = checkpoint.manifest();
  GANTRY_ASSIGN_OR_RETURN(const DecoderConfig model, SavedModel(manifest));
  GANTRY_RETURN_IF_ERROR(CheckTensors(manifest, model));
  GANTRY_ASSIGN_OR_RETURN(const std::string origin, OriginOf(request, manifest, model, context));
  GANTRY_RETURN_IF_ERROR(checkpoint.Verify());
  const DType dtype = request.dtype.value_or(model.parameter_dtype);
  GANTRY_RETURN_IF_ERROR(
      SaveModelFolder({.files = context.files,
                       .place = request.place,
                       .config = &model,
                       .dtype = dtype,
                       .shard_bytes_max = request.shard_bytes_max,
                       .origin = origin},
                      [&](const DecoderTensor& parameter, int64_t first, std::span<float> values) {
                        return checkpoint.ReadParameter(parameter.name, first, values);
                      }));
  ConvertedFolder result{.tensors = 0, .bytes = 0, .merged = 0};
  for (const DecoderTensor& parameter : DecoderTensors(model)) {
    ++result.tensors;
    result.bytes += parameter.elements() * SizeOf(dtype);
  }
  return result;
}

}  // namespace

CommandResult ConvertCommand(Arguments arguments, const CommandContext& context) {
  const absl::StatusOr<OutputFormat> format = TakeOutputFormat(arguments);
  if (!format.ok()) return UsageError(format.status());
  const absl::StatusOr<Request> request = TakeRequest(arguments);
  if (!request.ok()) return UsageError(request.status());
  const absl::StatusOr<ConvertedFolder> converted = IsModelOrAdapter(request->from)
                                                        ? ConvertModel(*request, context)
                                                        : ConvertCheckpoint(*request, context);
  if (!converted.ok()) return Failure(converted.status());
  if (*format == OutputFormat::kJson) {
    const Json json = {{"command", "convert"},      {"from", request->from},
                       {"to", request->place},      {"tensors", converted->tensors},
                       {"bytes", converted->bytes}, {"merged", converted->merged}};
    context.console->Out(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  } else {
    context.console->Out(StrCat(
        request->place, ": ", converted->tensors, " tensors, ", Bytes(converted->bytes),
        converted->merged > 0 ? StrCat(", an adapter of ", converted->merged, " maps merged") : "",
        "\n"));
  }
  return {};
}

}  // namespace gantry
