#include "trainer/cli/convert_command.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/booster/run_config.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"
#include "trainer/cli/config.h"
#include "trainer/cli/console.h"
#include "trainer/cli/inspect_model.h"
#include "trainer/hugging_face/convert_folder.h"
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

// The base's config.json is kept, so it must be that of the trained model.
absl::Status CheckOrigin(const Request& request, const DecoderConfig& model,
                         const CommandContext& context) {
  if (request.origin.empty()) return absl::OkStatus();
  GANTRY_ASSIGN_OR_RETURN(const ModelFolder folder, ReadModelFolder(*context.files, request.origin,
                                                                    ModelPurpose::kInference));
  DecoderConfig origin = folder.config.decoder;
  // What a run chooses for itself.
  origin.parameter_dtype = model.parameter_dtype;
  origin.recompute = model.recompute;
  origin.max_sequence = model.max_sequence;
  if (origin == model) return absl::OkStatus();
  return InvalidArgument("--base='", request.origin,
                         "' is not the folder that the checkpoint's model came from: its "
                         "config.json describes another one");
}

absl::StatusOr<ConvertedFolder> ConvertCheckpoint(const Request& request,
                                                  const CommandContext& context) {
  if (!request.adapter.empty()) {
    return InvalidArgument("--merge is for model folders: convert the checkpoint first");
  }
  GANTRY_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                          Checkpoint::Open(context.files, request.from));
  RunConfig config;
  GANTRY_RETURN_IF_ERROR(ApplyModelSettings(checkpoint.manifest().settings, config));
  GANTRY_RETURN_IF_ERROR(CheckOrigin(request, config.model, context));
  GANTRY_RETURN_IF_ERROR(checkpoint.Verify());
  const DType dtype = request.dtype.value_or(config.model.parameter_dtype);
  GANTRY_RETURN_IF_ERROR(
      SaveModelFolder({.files = context.files,
                       .place = request.place,
                       .config = &config.model,
                       .dtype = dtype,
                       .shard_bytes_max = request.shard_bytes_max,
                       .origin = request.origin},
                      [&](const DecoderTensor& parameter, int64_t first, std::span<float> values) {
                        return checkpoint.ReadParameter(parameter.name, first, values);
                      }));
  ConvertedFolder result{.tensors = 0, .bytes = 0, .merged = 0};
  for (const DecoderTensor& parameter : DecoderTensors(config.model)) {
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
