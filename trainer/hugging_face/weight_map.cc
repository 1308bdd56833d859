#include "trainer/hugging_face/weight_map.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "absl/status/status.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/safetensors/stored_dtype.h"

namespace gantry {
namespace {

constexpr size_t kNamedMax = 4;  // tensors, in a message
constexpr std::string_view kFrequencies = "rotary_emb.inv_freq";

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += StrCat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

std::string NamesText(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamedMax); ++i) {
    text += StrCat(i == 0 ? "" : ", ", JsonQuoted(names[i]));
  }
  if (names.size() > kNamedMax) text += StrCat(" and ", names.size() - kNamedMax, " more");
  return text;
}

bool EndsWithModule(std::string_view name, std::string_view module) {
  return name.ends_with(module) &&
         (name.size() == module.size() || name[name.size() - module.size() - 1] == '.');
}

bool IsIgnored(std::string_view name, DecoderFamily family) {
  if (family != DecoderFamily::kGpt2 && EndsWithModule(name, kFrequencies)) return true;
  const auto ignored = IgnoredLayerNames(family);
  return std::ranges::any_of(ignored,
                             [&](std::string_view module) { return EndsWithModule(name, module); });
}

// A parameter's name in these files.
class FileNames {
 public:
  FileNames(const SafetensorsReader& reader, const DecoderConfig& config,
            const DecoderTensor& embedding)
      : prefix_(NamePrefix(config.family)),
        head_(HeadName(config.family)),
        has_prefix_(reader.Find(embedding.name) != nullptr ||
                    reader.Find(std::string_view(embedding.name).substr(prefix_.size())) ==
                        nullptr) {}

  std::string_view Of(std::string_view name) const {
    return has_prefix_ || name == head_ ? name : name.substr(prefix_.size());
  }

 private:
  std::string_view prefix_;
  std::string_view head_;
  bool has_prefix_;
};

absl::Status CheckStored(const MappedWeight& weight, const std::string& path) {
  const std::vector<int64_t> shape = StoredShape(weight.parameter);
  if (weight.stored->shape != shape) {
    return InvalidArgument(path, ": tensor ", JsonQuoted(weight.stored->name), " is ",
                           ShapeText(weight.stored->shape), "; by config.json it must be ",
                           ShapeText(shape));
  }
  if (LoadableForm(weight.stored->dtype).has_value()) return absl::OkStatus();
  return InvalidArgument(path, ": tensor ", JsonQuoted(weight.stored->name), " is ",
                         weight.stored->dtype, "; only F32, BF16 and F16 can be loaded");
}

}  // namespace

std::vector<int64_t> StoredShape(const DecoderTensor& parameter) {
  std::vector<int64_t> shape = parameter.shape;
  if (parameter.stored_transposed) std::ranges::reverse(shape);
  return shape;
}

absl::StatusOr<WeightMap> MapWeights(const SafetensorsReader& reader, const DecoderConfig& config) {
  std::vector<DecoderTensor> parameters = DecoderTensors(config);
  const std::string& path = reader.path_of(0);
  const FileNames names(reader, config, parameters.front());
  WeightMap map;
  std::vector<std::string> missing;
  std::unordered_set<const StoredTensor*> used;
  for (DecoderTensor& parameter : parameters) {
    const std::string name(names.Of(parameter.name));
    const StoredTensor* const stored = reader.Find(name);
    if (stored == nullptr) {
      missing.push_back(name);
      continue;
    }
    used.insert(stored);
    map.weights.push_back({.parameter = std::move(parameter), .stored = stored});
    GANTRY_RETURN_IF_ERROR(CheckStored(map.weights.back(), reader.path_of(stored->file)));
  }
  if (!missing.empty()) {
    return InvalidArgument(path, " lacks ", missing.size(), " tensors of the ", config.family,
                           " that config.json describes: ", NamesText(missing));
  }
  std::vector<std::string> unexpected;
  for (const StoredTensor& stored : reader.tensors()) {
    if (used.contains(&stored) || IsIgnored(stored.name, config.family)) continue;
    if (config.tie_embeddings && stored.name == HeadName(config.family)) {
      map.spare_head = &stored;
    } else {
      unexpected.push_back(stored.name);
    }
  }
  if (!unexpected.empty()) {
    return InvalidArgument(path, " holds ", unexpected.size(), " tensors that are none of the ",
                           config.family, " that config.json describes: ", NamesText(unexpected));
  }
  std::ranges::sort(map.weights, {}, [](const MappedWeight& weight) { return weight.stored; });
  for (size_t i = 0; i < map.weights.size(); ++i) {
    if (map.weights[i].parameter.role == DecoderRole::kTokenEmbedding) map.embedding = i;
  }
  return map;
}

}  // namespace gantry
