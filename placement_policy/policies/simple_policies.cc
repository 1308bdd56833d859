#include "placement_policy/policies/simple_policies.h"

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/tier.h"
#include "placement_policy/machine.h"
#include "placement_policy/policies/tier_need.h"

namespace gantry {
namespace {

class DevicePolicy final : public PlacementPolicy {
 public:
  std::string_view name() const override { return "device"; }

  absl::StatusOr<Placement> Place(const PolicyInput& input) const override {
    GANTRY_RETURN_IF_ERROR(ValidateInput(input));
    // Gradients are never written down either, so all of them count.
    int64_t block_slots = 0;
    for (const ChunkFacts& chunk : input.chunks) {
      block_slots += chunk.parameter_slots + chunk.gradient_slots + chunk.optimizer_slots;
    }
    const int64_t slots = block_slots + input.activation_slots_max;
    if (slots > input.machine.device_slots) {
      const Bytes slot = input.machine.slot_bytes;
      return ResourceExhausted(
          "policy 'device': the device tier needs ", (slot * slots).count(), " bytes (",
          (slot * block_slots).count(), " for parameters, gradients and optimizer states, ",
          (slot * input.activation_slots_max).count(), " for activations), it has ",
          (slot * input.machine.device_slots).count(), " bytes");
    }
    const ChunkPlacement chunk{.update_tier = Tier::kDevice,
                               .parameter_on_device = Residency::kPinned,
                               .optimizer_on_update_tier = Residency::kPinned};
    return Placement{.eviction = EvictionOrder::kFurthestNextUse,
                     .chunks = std::vector<ChunkPlacement>(input.chunks.size(), chunk)};
  }
};

class CpuPolicy final : public PlacementPolicy {
 public:
  std::string_view name() const override { return "cpu"; }

  absl::StatusOr<Placement> Place(const PolicyInput& input) const override {
    GANTRY_RETURN_IF_ERROR(ValidateInput(input));
    const ChunkPlacement chunk{
        .update_tier = HostOf(input.machine),
        .parameter_on_device = input.machine.unified ? Residency::kFloating : Residency::kTransient,
        .optimizer_on_update_tier = Residency::kFloating};
    Placement placement{.eviction = EvictionOrder::kFurthestNextUse,
                        .chunks = std::vector<ChunkPlacement>(input.chunks.size(), chunk)};
    GANTRY_RETURN_IF_ERROR(CheckFits(name(), input, placement));
    return placement;
  }
};

class FloatingPolicy final : public PlacementPolicy {
 public:
  FloatingPolicy(std::string_view name, EvictionOrder eviction)
      : name_(name), eviction_(eviction) {}
  std::string_view name() const override { return name_; }

  absl::StatusOr<Placement> Place(const PolicyInput& input) const override {
    GANTRY_RETURN_IF_ERROR(ValidateInput(input));
    const ChunkPlacement chunk{.update_tier = HostOf(input.machine),
                               .parameter_on_device = Residency::kFloating,
                               .optimizer_on_update_tier = Residency::kFloating};
    Placement placement{.eviction = eviction_,
                        .chunks = std::vector<ChunkPlacement>(input.chunks.size(), chunk)};
    GANTRY_RETURN_IF_ERROR(CheckFits(name(), input, placement));
    return placement;
  }

 private:
  const std::string name_;
  const EvictionOrder eviction_;
};

}  // namespace

std::unique_ptr<PlacementPolicy> CreateDevicePolicy() { return std::make_unique<DevicePolicy>(); }

std::unique_ptr<PlacementPolicy> CreateCpuPolicy() { return std::make_unique<CpuPolicy>(); }

std::unique_ptr<PlacementPolicy> CreateFloatingPolicy(std::string_view name,
                                                      EvictionOrder eviction) {
  return std::make_unique<FloatingPolicy>(name, eviction);
}

}  // namespace gantry
