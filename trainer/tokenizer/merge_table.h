// The merges of a byte-pair encoding, and merging by them.
#ifndef GANTRY_TRAINER_TOKENIZER_MERGE_TABLE_H_
#define GANTRY_TRAINER_TOKENIZER_MERGE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/tokenizer/word_cache.h"

namespace gantry {

// Working memory of MergeTable::MergeAll: one thread at a time.
struct MergeScratch {
  struct Links {
    uint32_t previous;
    uint32_t next;
  };
  std::vector<uint32_t> ranks;
  std::vector<Links> links;
  std::vector<uint64_t> heap;
};

// Pairs of tokens, each with a rank and the token that they make. Thread-safe once filled.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    int32_t token;
  };
  static constexpr uint32_t kNoRank = UINT32_MAX;

  // Makes room; drops what was there.
  void Reserve(size_t merges);
  // Of the same pair, the last one counts. REQUIRES: no more than Reserve made room for.
  void Add(int32_t left, int32_t right, Merge merge);
  // With kNoRank when the pair makes nothing.
  Merge Find(int32_t left, int32_t right) const;

  // Merges until nothing is left to merge. REQUIRES: every merge makes a token whose text is longer
  // than those of the pair, and no two tokens have the same text.
  void MergeAll(std::vector<Symbol>& symbols, MergeScratch& scratch) const;

 private:
  struct Slot {
    uint64_t pair = kFree;
    Merge merge = {kNoRank, 0};
  };
  static constexpr uint64_t kFree = UINT64_MAX;  // tokens are not negative

  static uint64_t PairOf(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t SlotOf(uint64_t pair) const {
    return static_cast<size_t>((pair * 0x9E3779B97F4A7C15) >> shift_);
  }

  // Both give the same; which is faster is a matter of size.
  void MergeFew(std::vector<Symbol>& symbols, MergeScratch& scratch) const;
  void MergeMany(std::vector<Symbol>& symbols, MergeScratch& scratch) const;

  std::vector<Slot> slots_ = std::vector<Slot>(2);
  int shift_ = 63;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_MERGE_TABLE_H_
