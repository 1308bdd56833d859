#include "base/random.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "base/check.h"

namespace gantry {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr int kRounds = 10;
constexpr uint32_t kMultiplier0 = 0xd2511f53u;
constexpr uint32_t kMultiplier1 = 0xcd9e8d57u;
constexpr uint32_t kWeyl0 = 0x9e3779b9u;  // golden ratio
constexpr uint32_t kWeyl1 = 0xbb67ae85u;  // sqrt(3) - 1

constexpr uint32_t Low(uint64_t value) { return static_cast<uint32_t>(value); }
constexpr uint32_t High(uint64_t value) { return static_cast<uint32_t>(value >> 32); }
constexpr uint64_t Join(uint32_t low, uint32_t high) { return (uint64_t{high} << 32) | low; }

// The top 53 bits as a multiple of 2^-53 in [0, 1): every value is exact.
double ToUnit(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

}  // namespace

std::array<uint32_t, 4> Philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  std::array<uint32_t, 4> c = {Low(counter_low), High(counter_low), Low(counter_high),
                               High(counter_high)};
  uint32_t key0 = Low(key);
  uint32_t key1 = High(key);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * c[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * c[2];
    c = {High(product1) ^ c[1] ^ key0, Low(product1), High(product0) ^ c[3] ^ key1, Low(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

uint64_t Random::Bits(uint64_t index) const {
  const auto words = Philox(options_.seed, index, options_.stream);
  return Join(words[0], words[1]);
}

double Random::Uniform(uint64_t index) const { return ToUnit(Bits(index)); }

double Random::Normal(uint64_t index) const {
  const auto words = Philox(options_.seed, index, options_.stream);
  const double radius_uniform = 1.0 - ToUnit(Join(words[0], words[1]));  // (0, 1]: log is finite
  const double angle_uniform = ToUnit(Join(words[2], words[3]));
  return std::sqrt(-2.0 * std::log(radius_uniform)) *
         std::cos(2.0 * std::numbers::pi * angle_uniform);
}

int64_t Random::Below(int64_t bound, uint64_t index) const {
  GANTRY_CHECK_GE(bound, 1);
  const auto words = Philox(options_.seed, index, options_.stream);
  // floor(x * bound / 2^128) for a 128-bit x: no value is more than 2^-64 likelier than another.
  const auto factor = static_cast<uint64_t>(bound);
  const Wide low_product = Wide{Join(words[0], words[1])} * factor;
  const Wide high_product = Wide{Join(words[2], words[3])} * factor;
  return static_cast<int64_t>((high_product + (low_product >> 64)) >> 64);
}

}  // namespace gantry
