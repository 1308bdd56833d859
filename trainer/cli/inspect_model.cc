#include "trainer/cli/inspect_model.h"

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/hugging_face/adapter_folder.h"
#include "trainer/hugging_face/decoder_config_json.h"
#include "trainer/hugging_face/model_folder.h"
#include "trainer/models/decoder_config.h"
#include "trainer/safetensors/header.h"
#include "trainer/safetensors/reader.h"
#include "trainer/safetensors/stored_dtype.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

struct Count {
  int64_t tensors = 0;
  int64_t elements = 0;
  int64_t bytes = 0;
};

// What is known beside the tensors.
struct Description {
  std::string kind;                           // "model", "adapter" or "file"
  std::string sentence;                       // of a model or adapter; empty for a file
  std::optional<DecoderConfig> decoder = {};  // of a model that Gantry can run
  std::string refusal = {};                   // of one that it cannot
};

bool IsFolder(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

int64_t ElementsOf(const StoredTensor& tensor) {
  return tensor.bytes * 8 / BitsOf(tensor.dtype);  // a header's bytes are far from overflow
}

// For a terminal: names of files that somebody else made may hold anything.
std::string Plain(std::string_view text) {
  const std::string quoted = JsonQuoted(text);
  return quoted.substr(1, quoted.size() - 2);
}

std::map<StoredDType, Count> CountByType(const SafetensorsReader& reader) {
  std::map<StoredDType, Count> counts;
  for (const StoredTensor& tensor : reader.tensors()) {
    Count& count = counts[tensor.dtype];
    count.tensors += 1;
    count.elements += ElementsOf(tensor);
    count.bytes += tensor.bytes;
  }
  return counts;
}

std::string DecoderSentence(const DecoderConfig& decoder) {
  return StrCat(decoder.family, ": ", decoder.layers, " layers of width ", decoder.width, ", ",
                decoder.heads, " heads over ", decoder.kv_heads, ", vocabulary ",
                decoder.vocabulary, ", ", decoder.max_sequence, " positions");
}

absl::StatusOr<Description> Describe(FileCalls& files, const std::string& path) {
  if (!IsFolder(path)) return Description{.kind = "file", .sentence = ""};
  if (IsAdapterFolder(path)) {
    GANTRY_ASSIGN_OR_RETURN(const AdapterFolder adapter, AdapterFolder::Open(&files, path));
    return Description{.kind = "adapter",
                       .sentence = StrCat("adapter of rank ", adapter.config().rank, ", scale ",
                                          adapter.config().scale(), ", for ",
                                          adapter.modules().size(), " linear maps")};
  }
  if (!IsModelFolder(path)) return Description{.kind = "model", .sentence = ""};
  const absl::StatusOr<ModelFolder> folder = ReadModelFolder(files, path, ModelPurpose::kInference);
  if (!folder.ok()) {
    return Description{.kind = "model",
                       .sentence = "",
                       .refusal = std::string(FromAbsl(folder.status().message()))};
  }
  const DecoderConfig& decoder = folder->config.decoder;
  return Description{.kind = "model", .sentence = DecoderSentence(decoder), .decoder = decoder};
}

std::string JsonText(const std::string& path, const Description& description,
                     const SafetensorsReader& reader) {
  Json types = Json::object();
  int64_t elements = 0;
  for (const auto& [dtype, count] : CountByType(reader)) {
    elements += count.elements;
    types[std::string(Name(dtype))] = {
        {"tensors", count.tensors}, {"elements", count.elements}, {"bytes", count.bytes}};
  }
  Json files = Json::array();
  for (size_t i = 0; i < reader.file_count(); ++i) files.push_back(reader.path_of(i));
  Json tensors = Json::array();
  for (const StoredTensor& tensor : reader.tensors()) {
    tensors.push_back({{"name", tensor.name},
                       {"shape", tensor.shape},
                       {"dtype", Name(tensor.dtype)},
                       {"bytes", tensor.bytes},
                       {"file", tensor.file}});
  }
  Json json = {{"command", "inspect"}, {"path", path}, {"kind", description.kind}};
  if (description.kind == "model") {
    json["runs"] = description.decoder.has_value();
    if (description.decoder.has_value()) json["family"] = Name(description.decoder->family);
    if (!description.refusal.empty()) json["refusal"] = description.refusal;
  }
  json["parameters"] = elements;
  json["bytes"] = reader.data_bytes();
  json["metadata"] = reader.metadata();
  json["dtypes"] = std::move(types);
  json["files"] = std::move(files);
  json["tensors"] = std::move(tensors);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string TensorLine(const StoredTensor& tensor) {
  std::string shape;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    shape += StrCat(i == 0 ? "" : " x ", tensor.shape[i]);
  }
  return StrCat("  ", Plain(tensor.name), "  ", tensor.dtype, " [", shape, "]  ",
                Bytes(tensor.bytes), "\n");
}

std::string PlainText(const std::string& path, const Description& description,
                      const SafetensorsReader& reader) {
  std::string text = StrCat(path, "\n");
  if (!description.sentence.empty()) text += StrCat(description.sentence, "\n");
  if (!description.refusal.empty()) {
    text += StrCat("gantry cannot run it: ", description.refusal, "\n");
  }
  for (const auto& [dtype, count] : CountByType(reader)) {
    text += StrCat("  ", dtype, ": ", count.tensors, " tensors, ", count.elements, " elements, ",
                   Bytes(count.bytes), "\n");
  }
  size_t file = reader.file_count();  // none yet
  for (const StoredTensor& tensor : reader.tensors()) {
    if (tensor.file != file) text += StrCat("\n", reader.path_of(tensor.file), "\n");
    file = tensor.file;
    text += TensorLine(tensor);
  }
  return text;
}

}  // namespace

bool IsModelOrAdapter(const std::string& path) {
  struct stat info{};
  if (!IsFolder(path)) return stat(path.c_str(), &info) == 0 && path.ends_with(".safetensors");
  if (IsModelFolder(path) || IsAdapterFolder(path)) return true;
  return stat(StrCat(path, "/", kModelFile).c_str(), &info) == 0 ||
         stat(StrCat(path, "/", kModelIndexFile).c_str(), &info) == 0;
}

absl::StatusOr<std::string> InspectModel(FileCalls& files, const std::string& path,
                                         OutputFormat format) {
  GANTRY_ASSIGN_OR_RETURN(const Description description, Describe(files, path));
  const std::string opened =
      description.kind == "adapter" ? StrCat(path, "/", kAdapterModelFile) : path;
  GANTRY_ASSIGN_OR_RETURN(const SafetensorsReader reader, SafetensorsReader::Open(&files, opened));
  return format == OutputFormat::kJson ? JsonText(path, description, reader)
                                       : PlainText(path, description, reader);
}

}  // namespace gantry
