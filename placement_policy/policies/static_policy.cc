#include "placement_policy/policies/static_policy.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/tier.h"
#include "placement_policy/policies/tier_need.h"

namespace gantry {
namespace {

// Suggested fractions are multiples of this.
constexpr int64_t kFractionSteps = 1000;

// How many of the first chunks hold at most `1 - off_fraction` of all slots; `slots_of(i)` >= 0.
// Chunks without slots go with those before them: chunks that follow the last one with slots count
// only when nothing is off.
template <typename SlotsOf>
size_t CountResident(size_t chunk_count, double off_fraction, SlotsOf slots_of) {
  if (off_fraction == 0.0) return chunk_count;
  int64_t total = 0;
  for (size_t i = 0; i < chunk_count; ++i) total += slots_of(i);
  // A hair more, so that rounding of 1 - fraction does not push out the last chunk.
  const double target = static_cast<double>(total) * (1.0 - off_fraction + 1e-12);
  size_t resident = 0;
  int64_t sum = 0;
  for (size_t i = 0; i < chunk_count; ++i) {
    sum += slots_of(i);
    if (static_cast<double>(sum) > target) break;
    if (slots_of(i) > 0) resident = i + 1;
  }
  return resident;
}

Placement PlaceFractions(const PolicyInput& input, const StaticFractions& fractions) {
  const std::span<const ChunkFacts> chunks = input.chunks;
  const size_t parameters_on_device =
      CountResident(chunks.size(), fractions.offload_parameters,
                    [&](size_t i) { return chunks[i].parameter_slots; });
  const size_t updated_on_device =
      CountResident(chunks.size(), fractions.offload_optimizer,
                    [&](size_t i) { return chunks[i].optimizer_slots; });
  const size_t offloaded = chunks.size() - updated_on_device;
  const size_t pinned_off_device =
      CountResident(offloaded, fractions.spill_optimizer,
                    [&](size_t i) { return chunks[updated_on_device + i].optimizer_slots; });

  Placement placement{.eviction = EvictionOrder::kFurthestNextUse, .chunks = {}};
  placement.chunks.reserve(chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    const bool is_spilled = i >= updated_on_device + pinned_off_device;
    placement.chunks.push_back(
        {.update_tier = i < updated_on_device ? Tier::kDevice : HostOf(input.machine),
         .parameter_on_device =
             i < parameters_on_device ? Residency::kPinned : Residency::kFloating,
         .optimizer_on_update_tier = is_spilled ? Residency::kTransient : Residency::kPinned});
  }
  return placement;
}

absl::Status CheckFiles(const PolicyInput& input, const Placement& placement) {
  if (input.machine.has_file_tier) return absl::OkStatus();
  for (size_t i = 0; i < placement.chunks.size(); ++i) {
    const bool is_spilled = placement.chunks[i].optimizer_on_update_tier == Residency::kTransient;
    if (is_spilled && input.chunks[i].optimizer_slots > 0) {
      return InvalidArgument(
          "policy 'static': spill_optimizer keeps optimizer states in files, but the machine has "
          "no file tier; set spill_optimizer to 0");
    }
  }
  return absl::OkStatus();
}

// A field of StaticFractions with the words that describe what stays.
struct Knob {
  std::string_view name;
  std::string_view what_stays;
  double StaticFractions::* field;
};
constexpr std::array<Knob, 3> kKnobs = {
    Knob{"offload_parameters", "of the parameters on the device",
         &StaticFractions::offload_parameters},
    Knob{"offload_optimizer", "of the optimizer states on the device",
         &StaticFractions::offload_optimizer},
    Knob{"spill_optimizer", "of the offloaded optimizer states in memory",
         &StaticFractions::spill_optimizer}};

// The least larger value of one fraction with which everything fits, the others unchanged.
std::optional<double> LeastThatFits(const PolicyInput& input, StaticFractions fractions,
                                    const Knob& knob) {
  const double now = fractions.*knob.field;
  for (auto step = static_cast<int64_t>(std::floor(now * kFractionSteps)) + 1;
       step <= kFractionSteps; ++step) {
    const double value = static_cast<double>(step) / kFractionSteps;
    fractions.*knob.field = value;
    const Placement placement = PlaceFractions(input, fractions);
    if (CheckFiles(input, placement).ok() && CheckFits("static", input, placement).ok()) {
      return value;
    }
  }
  return std::nullopt;
}

std::string Suggest(const PolicyInput& input, const StaticFractions& fractions) {
  std::string text;
  for (const Knob& knob : kKnobs) {
    const std::optional<double> value = LeastThatFits(input, fractions, knob);
    if (!value.has_value()) continue;
    text += StrCat(text.empty() ? "; would fit: " : ", or ", knob.name, "=", *value, " (at most ",
                   1.0 - *value, " ", knob.what_stays, ")");
  }
  return text.empty() ? "; no single fraction makes it fit" : text;
}

class StaticPolicy final : public PlacementPolicy {
 public:
  explicit StaticPolicy(const StaticFractions& fractions) : fractions_(fractions) {}
  std::string_view name() const override { return "static"; }

  absl::StatusOr<Placement> Place(const PolicyInput& input) const override {
    GANTRY_RETURN_IF_ERROR(ValidateInput(input));
    Placement placement = PlaceFractions(input, fractions_);
    GANTRY_RETURN_IF_ERROR(CheckFiles(input, placement));
    const absl::Status fits = CheckFits(name(), input, placement);
    if (!fits.ok()) {
      return ResourceExhausted(FromAbsl(fits.message()), Suggest(input, fractions_));
    }
    return placement;
  }

 private:
  const StaticFractions fractions_;
};

}  // namespace

std::unique_ptr<PlacementPolicy> CreateStaticPolicy(const StaticFractions& fractions) {
  return std::make_unique<StaticPolicy>(fractions);
}

}  // namespace gantry
