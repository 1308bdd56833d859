#include "trainer/tokenizer/merge_table.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"

namespace gantry {
namespace {

constexpr size_t kFewSymbols = 64;
constexpr uint32_t kNoSymbol = UINT32_MAX;

// Ordered by rank and then place.
uint64_t HeapEntry(uint32_t rank, uint32_t place) {
  return static_cast<uint64_t>(rank) << 32 | place;
}

}  // namespace

void MergeTable::Reserve(size_t merges) {
  const size_t slots = std::bit_ceil(std::max<size_t>(2 * merges, 2));
  slots_.assign(slots, Slot());
  shift_ = 64 - std::countr_zero(slots);
}

void MergeTable::Add(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = PairOf(left, right);
  size_t at = SlotOf(pair);
  while (slots_[at].pair != kFree && slots_[at].pair != pair) at = (at + 1) % slots_.size();
  slots_[at] = {pair, merge};
}

MergeTable::Merge MergeTable::Find(int32_t left, int32_t right) const {
  const uint64_t pair = PairOf(left, right);
  // At most half of the slots are taken: the loop ends.
  for (size_t at = SlotOf(pair);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.pair == pair) return slot.merge;
    if (slot.pair == kFree) return {kNoRank, 0};
  }
}

void MergeTable::MergeAll(std::vector<Symbol>& symbols, MergeScratch& scratch) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kFewSymbols) {
    MergeFew(symbols, scratch);
  } else {
    MergeMany(symbols, scratch);
  }
}

void MergeTable::MergeFew(std::vector<Symbol>& symbols, MergeScratch& scratch) const {
  std::vector<uint32_t>& ranks = scratch.ranks;
  size_t pairs = symbols.size() - 1;
  ranks.resize(pairs);
  for (size_t i = 0; i < pairs; ++i) ranks[i] = Find(symbols[i].id, symbols[i + 1].id).rank;
  while (pairs > 0) {
    const auto least =
        std::min_element(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(pairs));
    if (*least == kNoRank) break;
    const auto at = static_cast<size_t>(least - ranks.begin());
    symbols[at] = {Find(symbols[at].id, symbols[at + 1].id).token,
                   symbols[at].size + symbols[at + 1].size};
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(at) + 1);
    ranks.erase(least);
    --pairs;
    if (at > 0) ranks[at - 1] = Find(symbols[at - 1].id, symbols[at].id).rank;
    if (at < pairs) ranks[at] = Find(symbols[at].id, symbols[at + 1].id).rank;
  }
}

void MergeTable::MergeMany(std::vector<Symbol>& symbols, MergeScratch& scratch) const {
  GANTRY_CHECK(symbols.size() < kNoSymbol);
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<MergeScratch::Links>& links = scratch.links;
  std::vector<uint64_t>& heap = scratch.heap;
  links.resize(count);
  heap.clear();
  for (uint32_t i = 0; i < count; ++i) {
    links[i] = {i == 0 ? kNoSymbol : i - 1, i + 1 == count ? kNoSymbol : i + 1};
    if (i + 1 == count) break;
    const uint32_t rank = Find(symbols[i].id, symbols[i + 1].id).rank;
    if (rank != kNoRank) heap.push_back(HeapEntry(rank, i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](uint32_t left, uint32_t right) {
    const uint32_t rank = Find(symbols[left].id, symbols[right].id).rank;
    if (rank == kNoRank) return;
    heap.push_back(HeapEntry(rank, left));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t entry = heap.back();
    heap.pop_back();
    const auto left = static_cast<uint32_t>(entry);
    // Merged away (its size is 0), or its neighbour has changed since.
    if (symbols[left].size == 0 || links[left].next == kNoSymbol) continue;
    const uint32_t right = links[left].next;
    const Merge merge = Find(symbols[left].id, symbols[right].id);
    if (merge.rank != static_cast<uint32_t>(entry >> 32)) continue;
    symbols[left] = {merge.token, symbols[left].size + symbols[right].size};
    symbols[right].size = 0;
    const uint32_t next = links[right].next;
    links[left].next = next;
    if (next != kNoSymbol) {
      links[next].previous = left;
      push(left, next);
    }
    if (links[left].previous != kNoSymbol) push(links[left].previous, left);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.size == 0; });
}

}  // namespace gantry
