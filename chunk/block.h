// Names of the things that move (design D5): a chunk is one element range of one group; a block is
// one kind of state of one chunk. Chunks are numbered through all groups of a layout.
#ifndef GANTRY_CHUNK_BLOCK_H_
#define GANTRY_CHUNK_BLOCK_H_

#include <compare>
#include <cstdint>
#include <ostream>
#include <string_view>

#include "base/ids.h"

namespace gantry {

enum class StateKind : uint8_t { kParameter, kGradient, kMaster, kMomentum, kVariance };
inline constexpr int kStateKindCount = 5;
std::string_view Name(StateKind kind);  // "parameter", "gradient", "master", ...

struct BlockId {
  StateKind kind;
  ChunkId chunk;

  constexpr auto operator<=>(const BlockId&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const BlockId& block) {
    return out << Name(block.kind) << " of " << block.chunk;
  }
};

}  // namespace gantry

#endif  // GANTRY_CHUNK_BLOCK_H_
