#include "trainer/models/lora_config.h"

#include <algorithm>
#include <cmath>

#include "base/strings.h"

namespace gantry {
namespace {

constexpr int64_t kRankMax = int64_t{1} << 20;
constexpr std::string_view kAllLinear = "all-linear";
constexpr std::string_view kWeightEnd = ".weight";

// Whether the text is the pattern with each '*' replaced by something. Linear in their product.
bool Matches(std::string_view pattern, std::string_view text) {
  size_t star = std::string_view::npos;
  size_t resume = 0;  // in text, when the last star takes one character more
  size_t p = 0;
  size_t t = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool MatchesTarget(std::string_view target, std::string_view module) {
  return target == kAllLinear || Matches(target, module) || Matches(StrCat("*.", target), module);
}

bool IsLayerProjection(const DecoderTensor& tensor) {
  return tensor.layer >= 0 && tensor.part == DecoderPart::kWeight && tensor.shape.size() == 2;
}

std::string_view ModuleOf(const DecoderTensor& tensor) {
  return std::string_view(tensor.name).substr(0, tensor.name.size() - kWeightEnd.size());
}

void AddAdapter(const LoraConfig& lora, const DecoderTensor& base,
                std::vector<AdapterTensor>& tensors) {
  const std::string module(ModuleOf(base));
  const int64_t out = base.shape[0];
  const int64_t in = base.shape[1];
  tensors.push_back({.name = module + ".lora_A.weight",
                     .base = base.name,
                     .part = AdapterPart::kA,
                     .shape = {lora.rank, in}});
  tensors.push_back({.name = module + ".lora_B.weight",
                     .base = base.name,
                     .part = AdapterPart::kB,
                     .shape = {out, lora.rank}});
  if (!lora.magnitudes) return;
  tensors.push_back({.name = module + ".lora_magnitude_vector",
                     .base = base.name,
                     .part = AdapterPart::kMagnitude,
                     .shape = {out}});
}

}  // namespace

double LoraConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

absl::Status ValidateLoraConfig(const LoraConfig& lora) {
  if (lora.rank < 1 || lora.rank > kRankMax) {
    return InvalidArgument("lora rank must be in [1, ", kRankMax, "], not ", lora.rank);
  }
  if (!std::isfinite(lora.alpha) || lora.alpha <= 0) {
    return InvalidArgument("lora alpha must be finite and positive, not ", lora.alpha);
  }
  if (!(lora.dropout >= 0.0 && lora.dropout < 1.0)) {
    return InvalidArgument("lora dropout must be in [0, 1), not ", lora.dropout);
  }
  if (lora.targets.empty()) {
    return InvalidArgument("lora targets are empty: name modules, or \"", kAllLinear, "\"");
  }
  for (const std::string& target : lora.targets) {
    if (target.empty()) return InvalidArgument("a lora target is empty");
  }
  return absl::OkStatus();
}

bool HasAdapter(const LoraConfig& lora, std::string_view module) {
  return std::ranges::any_of(
      lora.targets, [&](const std::string& target) { return MatchesTarget(target, module); });
}

int64_t AdapterTensor::elements() const {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

absl::StatusOr<std::vector<AdapterTensor>> AdapterTensors(const DecoderConfig& config,
                                                          const LoraConfig& lora) {
  const std::vector<DecoderTensor> all = DecoderTensors(config);
  for (const std::string& target : lora.targets) {
    const bool any = std::ranges::any_of(all, [&](const DecoderTensor& tensor) {
      return IsLayerProjection(tensor) && MatchesTarget(target, ModuleOf(tensor));
    });
    if (any) continue;
    return InvalidArgument("lora target \"", target, "\" is no linear map within a layer of a ",
                           Name(config.family), " model");
  }
  std::vector<AdapterTensor> tensors;
  for (const DecoderTensor& tensor : all) {
    if (!IsLayerProjection(tensor) || !HasAdapter(lora, ModuleOf(tensor))) continue;
    AddAdapter(lora, tensor, tensors);
  }
  return tensors;
}

}  // namespace gantry
