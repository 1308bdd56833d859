// Where bytes live, fastest first: what compute reads, pinned host memory, files.
#ifndef GANTRY_BASE_TIER_H_
#define GANTRY_BASE_TIER_H_

#include <cstdint>
#include <ostream>
#include <string_view>

namespace gantry {

enum class Tier : uint8_t { kDevice, kHost, kFile };
inline constexpr int kTierCount = 3;

constexpr std::string_view Name(Tier tier) {
  switch (tier) {
    case Tier::kDevice:
      return "device";
    case Tier::kHost:
      return "host";
    case Tier::kFile:
      return "file";
  }
  return "?";
}
inline std::ostream& operator<<(std::ostream& out, Tier tier) { return out << Name(tier); }

}  // namespace gantry

#endif  // GANTRY_BASE_TIER_H_
