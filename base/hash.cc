#include "base/hash.h"

// Compiled here, with our options, instead of linked.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/hash_kernels.h"

namespace gantry {
namespace {

uint64_t HashBaseline(const void* bytes, size_t size) { return XXH3_128bits(bytes, size).low64; }

}  // namespace

// xxhash's own allocation, because it wants 64-byte alignment and keeps the type's size private.
struct Hasher::State {
  State() : xxh3(XXH3_createState()) {
    GANTRY_CHECK(xxh3 != nullptr) << "out of memory";
    GANTRY_CHECK_EQ(XXH3_128bits_reset(xxh3), XXH_OK);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { XXH3_freeState(xxh3); }

  XXH3_state_t* const xxh3;
};

void Hasher::StateDeleter::operator()(State* state) const { delete state; }

Hasher::Hasher() : state_(new State) {}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

void Hasher::Update(std::span<const std::byte> bytes) {
  GANTRY_CHECK(state_ != nullptr) << "a moved-from hasher";
  // xxhash refuses a null pointer, which an empty span may hold.
  if (bytes.empty()) return;
  GANTRY_CHECK_EQ(XXH3_128bits_update(state_->xxh3, bytes.data(), bytes.size()), XXH_OK);
}

uint64_t Hasher::Digest64() const {
  GANTRY_CHECK(state_ != nullptr) << "a moved-from hasher";
  return XXH3_128bits_digest(state_->xxh3).low64;
}

std::string Hasher::HexDigest() const {
  GANTRY_CHECK(state_ != nullptr) << "a moved-from hasher";
  const XXH128_hash_t digest = XXH3_128bits_digest(state_->xxh3);
  std::array<char, 33> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx%016llx",
                static_cast<unsigned long long>(digest.high64),
                static_cast<unsigned long long>(digest.low64));
  return digits.data();
}

std::vector<HashVariant> HashVariants() {
  std::vector<HashVariant> variants;
#if defined(__x86_64__)
  const HashKernel avx512 = HashKernelAvx512();
  const HashKernel avx2 = HashKernelAvx2();
  if (avx512 != nullptr && __builtin_cpu_supports("avx512f")) {
    variants.push_back({"AVX-512", avx512});
  }
  if (avx2 != nullptr && __builtin_cpu_supports("avx2")) variants.push_back({"AVX2", avx2});
#endif
  variants.push_back({"baseline", HashBaseline});
  return variants;
}

uint64_t Hash64(std::span<const std::byte> bytes) {
  static const HashKernel kBest = HashVariants().front().kernel;
  return kBest(bytes.data(), bytes.size());
}

}  // namespace gantry
