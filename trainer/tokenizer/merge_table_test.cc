#include "trainer/tokenizer/merge_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/strings.h"

namespace gantry {
namespace {

// Random merges, as a table and as a map.
struct Merges {
  MergeTable table;
  std::map<std::pair<int32_t, int32_t>, MergeTable::Merge> map;
};

// Tokens 0..3 are letters; every merge makes a token of a longer text, unless the text has one.
Merges RandomMerges(const Random& random, uint64_t& draw) {
  constexpr size_t kMerges = 40;
  Merges merges;
  merges.table.Reserve(kMerges);
  std::map<std::string, int32_t> ids = {{"a", 0}, {"b", 1}, {"c", 2}, {"d", 3}};
  std::vector<std::string> texts = {"a", "b", "c", "d"};
  for (uint32_t rank = 0; rank < kMerges; ++rank) {
    const auto left = static_cast<int32_t>(random.Below(texts.size(), draw++));
    const auto right = static_cast<int32_t>(random.Below(texts.size(), draw++));
    const std::string text = texts[static_cast<size_t>(left)] + texts[static_cast<size_t>(right)];
    const auto [entry, is_new] = ids.emplace(text, static_cast<int32_t>(texts.size()));
    if (is_new) texts.push_back(text);
    const MergeTable::Merge merge = {rank, entry->second};
    merges.table.Add(left, right, merge);
    merges.map[{left, right}] = merge;
  }
  return merges;
}

// The definition: the pair of least rank, the leftmost of those, as long as there is one.
std::vector<Symbol> Merged(const Merges& merges, std::vector<Symbol> symbols) {
  while (true) {
    size_t best = symbols.size();
    MergeTable::Merge least = {MergeTable::kNoRank, 0};
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = merges.map.find({symbols[i].id, symbols[i + 1].id});
      if (found == merges.map.end() || found->second.rank >= least.rank) continue;
      least = found->second;
      best = i;
    }
    if (best == symbols.size()) return symbols;
    symbols[best] = {least.token, symbols[best].size + symbols[best + 1].size};
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(MergeTableTest, MergesAsDefinedWhateverTheSize) {
  constexpr uint64_t kSeed = 5;
  SCOPED_TRACE(StrCat("seed ", kSeed));
  const Random random({.seed = kSeed, .stream = 0});
  uint64_t draw = 0;
  MergeScratch scratch;
  for (int round = 0; round < 300; ++round) {
    const Merges merges = RandomMerges(random, draw);
    // Few and many symbols, and the limit between: 64.
    for (const int64_t size : {0, 1, 2, 5, 20, 63, 64, 65, 66, 150}) {
      std::vector<Symbol> symbols;
      for (int64_t i = 0; i < size; ++i) {
        symbols.push_back({static_cast<int32_t>(random.Below(4, draw++)),
                           static_cast<uint32_t>(1 + random.Below(4, draw++))});
      }
      const std::vector<Symbol> expected = Merged(merges, symbols);
      merges.table.MergeAll(symbols, scratch);
      ASSERT_EQ(symbols.size(), expected.size());
      for (size_t i = 0; i < symbols.size(); ++i) {
        ASSERT_EQ(symbols[i].id, expected[i].id);
        ASSERT_EQ(symbols[i].size, expected[i].size);
      }
    }
  }
}

TEST(MergeTableTest, FindsWhatWasAddedLast) {
  MergeTable table;
  EXPECT_EQ(table.Find(0, 0).rank, MergeTable::kNoRank);
  table.Reserve(2);
  table.Add(1, 2, {7, 9});
  table.Add(1, 2, {8, 9});
  EXPECT_EQ(table.Find(1, 2).rank, 8u);
  EXPECT_EQ(table.Find(2, 1).rank, MergeTable::kNoRank);
}

}  // namespace
}  // namespace gantry
