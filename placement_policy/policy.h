// Placement policies: pure functions from what is known (chunks, machine) to a placement.
//
//   device  everything stays on the device, updates run there; an error when it does not fit
//   cpu     parameters are on the device only while used; states stay on the host
//   static  given fractions of the unique bytes are off the device, honoured within one chunk
//   auto    what is used furthest in the future leaves first (Belady's MIN over the cyclic trace)
//   lru     what was used longest ago leaves first (a baseline to compare with)
//   planned like auto until the times of a step are known, then by a movement plan (planner.h)
#ifndef GANTRY_PLACEMENT_POLICY_POLICY_H_
#define GANTRY_PLACEMENT_POLICY_POLICY_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/tier.h"
#include "placement_policy/machine.h"

namespace gantry {

// How a block behaves on a tier once it is there.
enum class Residency : uint8_t {
  kPinned,     // stays; leaves only when nothing else can
  kFloating,   // leaves by the eviction order when room is needed
  kTransient,  // leaves as soon as it is not used
};

inline constexpr std::string_view kPlannedPolicy = "planned";

enum class EvictionOrder : uint8_t { kFurthestNextUse, kLeastRecentlyUsed };

// Slots per chunk; gradient and optimizer slots are 0 for frozen chunks.
struct ChunkFacts {
  int64_t parameter_slots;
  int64_t gradient_slots;
  int64_t optimizer_slots;  // master, momentum and variance together
};

// Fractions of unique bytes for the static policy, each in [0, 1].
struct StaticFractions {
  double offload_parameters = 1.0;  // parameters whose home is not the device
  double offload_optimizer = 1.0;   // optimizer states updated on the host, not on the device
  double spill_optimizer = 0.0;     // of the offloaded states: kept in files between steps
};

struct ChunkPlacement {
  Tier update_tier;  // where the chunk's optimizer update runs
  Residency parameter_on_device;
  Residency optimizer_on_update_tier;
};

struct Placement {
  EvictionOrder eviction;
  std::vector<ChunkPlacement> chunks;
};

struct PolicyInput {
  std::span<const ChunkFacts> chunks;
  Machine machine;
  int64_t activation_slots_max;  // most device slots that activations and one operator need
};

class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;
  virtual std::string_view name() const = 0;
  // Errors: kResourceExhausted with the bytes needed and there, for a policy that cannot give way.
  virtual absl::StatusOr<Placement> Place(const PolicyInput& input) const = 0;
};

// `name` as above. Errors: kInvalidArgument for an unknown name (with the nearest) or a fraction
// outside [0, 1].
absl::StatusOr<std::unique_ptr<PlacementPolicy>> CreatePolicy(std::string_view name,
                                                              const StaticFractions& fractions);
// The names that CreatePolicy accepts.
std::span<const std::string_view> PolicyNames();

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_POLICY_H_
