#include "nvme/piece_table.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"
#include "base/hash.h"
#include "base/strings.h"
#include "nvme/io_backend.h"

namespace gantry {

PieceTable::PieceTable(Bytes extent_bytes)
    : pieces_(CeilDiv(extent_bytes.count(), kPieceBytes)), extent_bytes_(extent_bytes.count()) {
  GANTRY_CHECK_GT(extent_bytes_, 0);
}

void PieceTable::Grow(int64_t extents) {
  const std::vector<std::byte> zeros(static_cast<size_t>(std::min(extent_bytes_, kPieceBytes)));
  const int64_t last_bytes = extent_bytes_ - (pieces_ - 1) * kPieceBytes;
  const uint64_t whole = Hash64(zeros);
  const uint64_t last = Hash64(std::span(zeros).first(static_cast<size_t>(last_bytes)));
  extents_.resize(extents_.size() + static_cast<size_t>(extents));
  for (int64_t i = 0; i < extents; ++i) {
    current_.insert(current_.end(), static_cast<size_t>(pieces_ - 1), whole);
    current_.push_back(last);
  }
  previous_.resize(current_.size());
  std::copy(current_.end() - extents * pieces_, current_.end(),
            previous_.end() - extents * pieces_);
}

size_t PieceTable::Index(Piece piece) const {
  GANTRY_CHECK(piece.extent.value() >= 0 &&
               piece.extent.value() < static_cast<int64_t>(extents_.size()))
      << piece.extent;
  GANTRY_CHECK(piece.index >= 0 && piece.index < pieces_) << "piece " << piece.index;
  return static_cast<size_t>(piece.extent.value() * pieces_ + piece.index);
}

int64_t PieceTable::generation(ExtentId extent) const {
  return extents_[Index({extent, 0}) / static_cast<size_t>(pieces_)].generation;
}

void PieceTable::Advance(ExtentId extent, std::span<const uint64_t> hashes) {
  GANTRY_CHECK_EQ(static_cast<int64_t>(hashes.size()), pieces_);
  const size_t first = Index({extent, 0});
  for (size_t i = 0; i < hashes.size(); ++i) {
    previous_[first + i] = current_[first + i];
    current_[first + i] = hashes[i];
  }
  Extent& entry = extents_[static_cast<size_t>(extent.value())];
  ++entry.generation;
  entry.failed_write = false;
}

void PieceTable::NoteFailedWrite(ExtentId extent) {
  extents_[Index({extent, 0}) / static_cast<size_t>(pieces_)].failed_write = true;
}

bool PieceTable::Matches(Piece piece, uint64_t hash) const {
  return current_[Index(piece)] == hash;
}

std::string PieceTable::Diagnose(Piece piece, uint64_t hash) const {
  GANTRY_CHECK(!Matches(piece, hash));
  const Extent& extent = extents_[static_cast<size_t>(piece.extent.value())];
  if (extent.failed_write) {
    return StrCat("a write of generation ", extent.generation + 1,
                  " failed before and left a mixture");
  }
  if (extent.generation > 0 && previous_[Index(piece)] == hash) {
    return StrCat("the bytes are those of generation ", extent.generation - 1,
                  ": the last write was lost");
  }
  for (const std::vector<uint64_t>* hashes : {&current_, &previous_}) {
    const int64_t behind = hashes == &current_ ? 0 : 1;
    for (auto found = std::ranges::find(*hashes, hash); found != hashes->end();
         found = std::find(found + 1, hashes->end(), hash)) {
      const int64_t index = found - hashes->begin();
      const ExtentId other(index / pieces_);
      const int64_t generation = extents_[static_cast<size_t>(other.value())].generation - behind;
      if (generation <= 0) continue;  // zeros say nothing
      return StrCat("the bytes are those of ", other, " piece ", index % pieces_, " generation ",
                    generation, ": a write went to the wrong place");
    }
  }
  return "the bytes are nothing that was written here: corrupted";
}

}  // namespace gantry
