#include "trainer/checkpoint/manifest.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "chunk/block.h"
#include "chunk/chunk_layout.h"
#include "chunk/optimizer_states.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormatName = "gantry-checkpoint";
constexpr std::string_view kPrefix = "{\"checksum\": \"";
constexpr std::string_view kSeparator = "\",\n";
constexpr size_t kChecksumDigits = 32;
constexpr size_t kNameBytesMax = 4096;
constexpr int kDepthMax = 16;

std::string ChecksumOf(std::string_view text) {
  Hasher hasher;
  hasher.Update(text);
  return hasher.HexDigest();
}

Json ToJson(const TensorEntry& tensor) {
  Json states = Json::array();
  for (const StateEntry& state : tensor.states) {
    states.push_back({{"kind", Name(state.kind)},
                      {"dtype", Name(SavedDType(state.kind, tensor.dtype))},
                      {"offset", state.offset},
                      {"bytes", state.bytes},
                      {"checksum", state.checksum}});
  }
  return {{"name", tensor.name},
          {"shape", tensor.shape},
          {"dtype", Name(tensor.dtype)},
          {"trainable", tensor.trainability == Trainability::kTrainable},
          {"states", std::move(states)}};
}

// The position beyond step and sequences.
Json ProgressJson(const RunPosition& position) {
  Json json = {{"updates", position.updates},
               {"evaluated_step", position.evaluated_step},
               {"evaluations_without_improvement", position.evaluations_without_improvement}};
  if (position.loss_to_beat.has_value()) json["loss_to_beat"] = *position.loss_to_beat;
  if (position.best.has_value()) {
    json["best"] = {{"step", position.best->step}, {"loss", position.best->loss}};
  }
  if (position.loss_scale.has_value()) {
    json["loss_scale"] = {{"scale", position.loss_scale->scale},
                          {"good_steps", position.loss_scale->good_steps}};
  }
  return json;
}

Json ToJson(const CheckpointManifest& manifest) {
  Json settings = Json::object();
  for (const auto& [key, value] : manifest.settings) settings[key] = value;
  Json tensors = Json::array();
  for (const TensorEntry& tensor : manifest.tensors) tensors.push_back(ToJson(tensor));
  return {{"format", kFormatName},
          {"version", kCheckpointVersion},
          {"step", manifest.position.step},
          {"sequences", manifest.position.sequences},
          {"progress", ProgressJson(manifest.position)},
          {"state_bytes", manifest.state_bytes()},
          {"optimizer", Name(manifest.optimizer)},
          {"settings", std::move(settings)},
          {"tensors", std::move(tensors)}};
}

// The JSON library destroys nested values recursively: deep ones must not reach it.
bool TooDeep(std::string_view json) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') in_string = !in_string;
    if (in_string) {
      if (c == '\\') ++i;
      continue;
    }
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kDepthMax) return true;
  }
  return false;
}

// ---- Parsing. Nothing is read from a member before its type is known.

absl::StatusOr<const Json*> Member(const Json& object, const char* key) {
  if (!object.is_object()) return DataLoss("expected an object with '", key, "'");
  const auto found = object.find(key);
  if (found == object.end()) return DataLoss("'", key, "' is missing");
  return &*found;
}

absl::StatusOr<int64_t> Count(const Json& object, const char* key) {
  GANTRY_ASSIGN_OR_RETURN(const Json* value, Member(object, key));
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!value->is_number_unsigned() || value->get<uint64_t>() > kMax) {
    return DataLoss("'", key, "' is no count");
  }
  return value->get<int64_t>();
}

absl::StatusOr<std::string> Text(const Json& object, const char* key) {
  GANTRY_ASSIGN_OR_RETURN(const Json* value, Member(object, key));
  if (!value->is_string()) return DataLoss("'", key, "' is no text");
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > kNameBytesMax) return DataLoss("'", key, "' has ", text.size(), " bytes");
  return text;
}

absl::StatusOr<const Json*> Array(const Json& object, const char* key) {
  GANTRY_ASSIGN_OR_RETURN(const Json* value, Member(object, key));
  if (!value->is_array()) return DataLoss("'", key, "' is no list");
  return value;
}

absl::Status ParseShape(const Json& object, TensorEntry& tensor) {
  GANTRY_ASSIGN_OR_RETURN(const Json* shape, Array(object, "shape"));
  int64_t elements = 1;
  for (const Json& extent : *shape) {
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() < 1 ||
        extent.get<uint64_t>() > static_cast<uint64_t>(kModelElementsMax / elements)) {
      return DataLoss("its shape is impossible");
    }
    elements *= extent.get<int64_t>();
    tensor.shape.push_back(extent.get<int64_t>());
  }
  return absl::OkStatus();
}

// Where the tensor's states begin, and whose they are.
struct StatesContext {
  int64_t offset;
  OptimizerKind optimizer;
};

// The state must be the one of `kind` that begins at the offset.
absl::StatusOr<StateEntry> ParseState(const Json& object, const TensorEntry& tensor, StateKind kind,
                                      const StatesContext& context) {
  const int64_t offset = context.offset;
  const DType dtype = SavedDType(kind, tensor.dtype);
  GANTRY_ASSIGN_OR_RETURN(const std::string kind_name, Text(object, "kind"));
  GANTRY_ASSIGN_OR_RETURN(const std::string dtype_name, Text(object, "dtype"));
  if (kind_name != Name(kind) || dtype_name != Name(dtype)) {
    return DataLoss("it holds ", kind_name, " in ", dtype_name, " where ", Name(kind), " in ",
                    Name(dtype), " belongs");
  }
  StateEntry state{.kind = kind, .offset = 0, .bytes = 0, .checksum = {}};
  GANTRY_ASSIGN_OR_RETURN(state.offset, Count(object, "offset"));
  GANTRY_ASSIGN_OR_RETURN(state.bytes, Count(object, "bytes"));
  const int64_t bytes = StateElements(kind, tensor.shape, context.optimizer) * SizeOf(dtype);
  if (state.offset != offset || state.bytes != bytes) {
    return DataLoss("its ", Name(kind), " lies at ", state.offset, " with ", state.bytes,
                    " bytes, not at ", offset, " with ", bytes);
  }
  GANTRY_ASSIGN_OR_RETURN(state.checksum, Text(object, "checksum"));
  if (state.checksum.size() != kChecksumDigits) return DataLoss("its checksum is malformed");
  return state;
}

absl::Status ParseStates(const Json& object, StatesContext context, TensorEntry& tensor) {
  GANTRY_ASSIGN_OR_RETURN(const Json* states, Array(object, "states"));
  const std::vector<StateKind> kinds =
      SavedStates(tensor.dtype, tensor.trainability, context.optimizer);
  if (states->size() != kinds.size()) return DataLoss("it has ", states->size(), " states");
  for (size_t i = 0; i < kinds.size(); ++i) {
    GANTRY_ASSIGN_OR_RETURN(StateEntry state, ParseState((*states)[i], tensor, kinds[i], context));
    context.offset += state.bytes;
    tensor.states.push_back(std::move(state));
  }
  return absl::OkStatus();
}

absl::Status ParseTensor(const Json& object, const StatesContext& context, TensorEntry& tensor) {
  GANTRY_RETURN_IF_ERROR(ParseShape(object, tensor));
  GANTRY_ASSIGN_OR_RETURN(const std::string dtype, Text(object, "dtype"));
  const absl::StatusOr<DType> parsed = ParseDType(dtype);
  if (!parsed.ok() || Name(*parsed) != dtype) return DataLoss("'", dtype, "' is no dtype");
  tensor.dtype = *parsed;
  GANTRY_ASSIGN_OR_RETURN(const Json* trainable, Member(object, "trainable"));
  if (!trainable->is_boolean()) return DataLoss("'trainable' is neither true nor false");
  tensor.trainability = trainable->get<bool>() ? Trainability::kTrainable : Trainability::kFrozen;
  return ParseStates(object, context, tensor);
}

absl::Status ParseTensors(const Json& body, CheckpointManifest& manifest) {
  GANTRY_ASSIGN_OR_RETURN(const Json* tensors, Array(body, "tensors"));
  std::set<std::string, std::less<>> names;
  int64_t offset = 0;
  int64_t elements = 0;
  for (const Json& object : *tensors) {
    TensorEntry tensor{.name = {},
                       .shape = {},
                       .dtype = DType::kF32,
                       .trainability = Trainability::kFrozen,
                       .states = {}};
    GANTRY_ASSIGN_OR_RETURN(tensor.name, Text(object, "name"));
    if (tensor.name.empty() || !names.insert(tensor.name).second) {
      return DataLoss("a tensor's name, '", tensor.name, "', is empty or there twice");
    }
    const absl::Status status =
        ParseTensor(object, {.offset = offset, .optimizer = manifest.optimizer}, tensor);
    if (!status.ok()) {
      return DataLoss("tensor '", tensor.name, "': ", FromAbsl(status.message()));
    }
    elements += tensor.elements();
    if (elements > kModelElementsMax) return DataLoss("the model is impossibly large");
    for (const StateEntry& state : tensor.states) offset += state.bytes;
    manifest.tensors.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

absl::Status ParseSettings(const Json& body, CheckpointManifest& manifest) {
  GANTRY_ASSIGN_OR_RETURN(const Json* settings, Member(body, "settings"));
  if (!settings->is_object()) return DataLoss("'settings' is no object");
  for (const auto& [key, value] : settings->items()) {
    if (!value.is_string()) return DataLoss("setting '", key, "' is no text");
    manifest.settings[key] = value.get_ref<const std::string&>();
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Number(const Json& object, const char* key) {
  GANTRY_ASSIGN_OR_RETURN(const Json* value, Member(object, key));
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    return DataLoss("'", key, "' is no finite number");
  }
  return value->get<double>();
}

// At most `step`, as it counts some of the steps done or names one.
absl::StatusOr<int64_t> StepCount(const Json& object, const char* key, int64_t step) {
  GANTRY_ASSIGN_OR_RETURN(const int64_t count, Count(object, key));
  if (count > step) return DataLoss("'", key, "' is ", count, " after ", step, " steps");
  return count;
}

// Checkpoints of the time when no step was skipped and nothing looked at evaluations have no
// progress: then it follows from the step.
absl::Status ParseProgress(const Json& body, RunPosition& position) {
  if (!body.contains("progress")) {
    position.updates = position.step;
    position.evaluated_step = position.step;
    return absl::OkStatus();
  }
  GANTRY_ASSIGN_OR_RETURN(const Json* progress, Member(body, "progress"));
  GANTRY_ASSIGN_OR_RETURN(position.updates, StepCount(*progress, "updates", position.step));
  GANTRY_ASSIGN_OR_RETURN(position.evaluated_step,
                          StepCount(*progress, "evaluated_step", position.step));
  GANTRY_ASSIGN_OR_RETURN(position.evaluations_without_improvement,
                          StepCount(*progress, "evaluations_without_improvement", position.step));
  if (progress->contains("loss_to_beat")) {
    GANTRY_ASSIGN_OR_RETURN(position.loss_to_beat, Number(*progress, "loss_to_beat"));
  }
  if (progress->contains("best")) {
    const Json& best = (*progress)["best"];
    position.best = {.step = 0, .loss = 0.0};
    GANTRY_ASSIGN_OR_RETURN(position.best->step, StepCount(best, "step", position.step));
    GANTRY_ASSIGN_OR_RETURN(position.best->loss, Number(best, "loss"));
  }
  if (progress->contains("loss_scale")) {
    const Json& scale = (*progress)["loss_scale"];
    position.loss_scale = {.scale = 0.0, .good_steps = 0};
    GANTRY_ASSIGN_OR_RETURN(position.loss_scale->scale, Number(scale, "scale"));
    if (position.loss_scale->scale <= 0.0) return DataLoss("its loss scale is not positive");
    GANTRY_ASSIGN_OR_RETURN(position.loss_scale->good_steps,
                            StepCount(scale, "good_steps", position.step));
  }
  return absl::OkStatus();
}

// Checkpoints of the time when there was one optimizer do not name it.
absl::Status ParseOptimizer(const Json& body, CheckpointManifest& manifest) {
  if (!body.contains("optimizer")) return absl::OkStatus();
  GANTRY_ASSIGN_OR_RETURN(const std::string name, Text(body, "optimizer"));
  const absl::StatusOr<OptimizerKind> parsed = ParseOptimizerKind(name);
  if (!parsed.ok()) return DataLoss("its optimizer: ", FromAbsl(parsed.status().message()));
  manifest.optimizer = *parsed;
  return absl::OkStatus();
}

absl::StatusOr<CheckpointManifest> ParseBody(const Json& body) {
  GANTRY_ASSIGN_OR_RETURN(const std::string format, Text(body, "format"));
  if (format != kFormatName) return DataLoss("its format is '", format, "'");
  GANTRY_ASSIGN_OR_RETURN(const int64_t version, Count(body, "version"));
  if (version != kCheckpointVersion) {
    return FailedPrecondition("it has version ", version, " and this program reads version ",
                              kCheckpointVersion);
  }
  CheckpointManifest manifest;
  GANTRY_ASSIGN_OR_RETURN(manifest.position.step, Count(body, "step"));
  GANTRY_ASSIGN_OR_RETURN(manifest.position.sequences, Count(body, "sequences"));
  GANTRY_RETURN_IF_ERROR(ParseProgress(body, manifest.position));
  GANTRY_RETURN_IF_ERROR(ParseSettings(body, manifest));
  GANTRY_RETURN_IF_ERROR(ParseOptimizer(body, manifest));
  GANTRY_RETURN_IF_ERROR(ParseTensors(body, manifest));
  GANTRY_ASSIGN_OR_RETURN(const int64_t state_bytes, Count(body, "state_bytes"));
  if (state_bytes != manifest.state_bytes()) {
    return DataLoss("it counts ", state_bytes, " bytes of state, its tensors ",
                    manifest.state_bytes());
  }
  return manifest;
}

}  // namespace

int64_t TensorEntry::elements() const {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

int64_t CheckpointManifest::state_bytes() const {
  int64_t bytes = 0;
  for (const TensorEntry& tensor : tensors) {
    for (const StateEntry& state : tensor.states) bytes += state.bytes;
  }
  return bytes;
}

std::vector<StateKind> SavedStates(DType dtype, Trainability trainability,
                                   OptimizerKind optimizer) {
  if (trainability == Trainability::kFrozen) return {StateKind::kParameter};
  std::vector<StateKind> kinds = {dtype == DType::kF32 ? StateKind::kParameter
                                                       : StateKind::kMaster};
  const OptimizerStates states = StatesOf(optimizer);
  if (states.momentum) kinds.push_back(StateKind::kMomentum);
  if (states.variance || FactorsVariance(optimizer)) kinds.push_back(StateKind::kVariance);
  return kinds;
}

DType SavedDType(StateKind kind, DType dtype) {
  return kind == StateKind::kParameter ? dtype : DType::kF32;
}

absl::StatusOr<std::string> SerializeManifest(const CheckpointManifest& manifest) {
  std::string body;
  try {
    body = ToJson(manifest).dump(1);
  } catch (const Json::exception& error) {
    return InvalidArgument("a name or setting cannot be saved: ", error.what());
  }
  GANTRY_CHECK(!body.empty() && body.front() == '{');
  body.erase(0, 1);
  body += '\n';
  std::string text = StrCat(kPrefix, ChecksumOf(body), kSeparator, body);
  if (static_cast<int64_t>(text.size()) > kManifestBytesMax.count()) {
    return ResourceExhausted("the manifest of ", manifest.tensors.size(), " tensors has ",
                             text.size(), " bytes, more than ", kManifestBytesMax);
  }
  return text;
}

absl::StatusOr<CheckpointManifest> ParseManifest(std::string_view text) {
  const size_t body_begin = kPrefix.size() + kChecksumDigits + kSeparator.size();
  if (text.size() < body_begin || !text.starts_with(kPrefix) ||
      text.substr(kPrefix.size() + kChecksumDigits, kSeparator.size()) != kSeparator) {
    return DataLoss("it is no checkpoint's manifest");
  }
  const std::string_view body_text = text.substr(body_begin);
  if (ChecksumOf(body_text) != text.substr(kPrefix.size(), kChecksumDigits)) {
    return DataLoss("it is damaged: its checksum does not fit");
  }
  // To the parser a zero byte is the end of the text.
  if (body_text.find('\0') != std::string_view::npos) return DataLoss("it holds a zero byte");
  if (TooDeep(body_text)) return DataLoss("its values are nested too deep");
  const Json body = Json::parse(StrCat("{", body_text), nullptr, /*allow_exceptions=*/false);
  if (body.is_discarded()) return DataLoss("it is no JSON");
  return ParseBody(body);
}

}  // namespace gantry
