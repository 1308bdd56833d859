// What every piece of every extent should hold: per extent its generation (the count of its writes)
// and the checksums of the current and the previous generation. Tells what wrong bytes are.
//
// Generation 0 is the preallocated file: zeros. Pure; thread-compatible.
#ifndef GANTRY_NVME_PIECE_TABLE_H_
#define GANTRY_NVME_PIECE_TABLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "nvme/extent_id.h"

namespace gantry {

class PieceTable {
 public:
  explicit PieceTable(Bytes extent_bytes);

  void Grow(int64_t extents);
  int64_t pieces_per_extent() const { return pieces_; }

  int64_t generation(ExtentId extent) const;
  // A write is done; `hashes` are its pieces'. Begins the next generation.
  void Advance(ExtentId extent, std::span<const uint64_t> hashes);
  // A write has failed: what the extent holds is a mixture until the next Advance.
  void NoteFailedWrite(ExtentId extent);

  struct Piece {
    ExtentId extent;
    int64_t index;  // from the start of the extent
  };
  // Whether bytes with this checksum are the current generation's.
  bool Matches(Piece piece, uint64_t hash) const;
  // What bytes with this checksum are, that should have been the current generation's: "generation
  // 3 of it: the last write was lost", "extent#7 piece 2 ...: a write went to the wrong place", or
  // "corrupted". REQUIRES: !Matches(piece, hash).
  std::string Diagnose(Piece piece, uint64_t hash) const;

 private:
  struct Extent {
    int64_t generation = 0;
    bool failed_write = false;
  };
  size_t Index(Piece piece) const;

  const int64_t pieces_;
  const int64_t extent_bytes_;
  std::vector<Extent> extents_;
  std::vector<uint64_t> current_;   // by Index
  std::vector<uint64_t> previous_;  // by Index
};

}  // namespace gantry

#endif  // GANTRY_NVME_PIECE_TABLE_H_
