// Fast non-cryptographic checksums (XXH3, 128 bits) of blocks and files: they catch damage, not
// malice. The digest depends on the bytes only, never on how they were split over Update calls, and
// is the same on every machine, so it may be stored.
//
//   Hasher hasher;
//   for (auto part : parts) hasher.Update(part);
//   manifest.checksum = hasher.HexDigest();
#ifndef GANTRY_BASE_HASH_H_
#define GANTRY_BASE_HASH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash_kernels.h"

namespace gantry {

// Move-only; a moved-from Hasher may only be destroyed or assigned. Thread-compatible.
class Hasher {
 public:
  Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  ~Hasher();

  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view text) { Update(std::as_bytes(std::span(text))); }

  // Both may be called at any time, and Update again afterwards.
  uint64_t Digest64() const;      // the low half of the 128 bits
  std::string HexDigest() const;  // all 128 bits as 32 lower-case digits, the high half first

 private:
  struct State;  // keeps xxhash out of this header
  struct StateDeleter {
    void operator()(State* state) const;
  };
  std::unique_ptr<State, StateDeleter> state_;
};

// Digest64 of one piece, without the cost of a Hasher and with the best instructions that this
// processor has.
uint64_t Hash64(std::span<const std::byte> bytes);

// What Hash64 chooses from: the compilations that this processor can run, best first, the baseline
// last. All give the same digests. For tests and benchmarks.
struct HashVariant {
  std::string_view name;
  HashKernel kernel;
};
std::vector<HashVariant> HashVariants();

}  // namespace gantry

#endif  // GANTRY_BASE_HASH_H_
