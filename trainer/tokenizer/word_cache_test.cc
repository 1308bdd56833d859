#include "trainer/tokenizer/word_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/strings.h"

namespace gantry {
namespace {

std::vector<Symbol> SymbolsOf(int word) {
  return std::vector<Symbol>(static_cast<size_t>(word % 4), Symbol{word, 1});
}

TEST(WordCacheTest, KeepsWordsUntilItIsFullAndThenBeginsAnew) {
  constexpr int kWords = 32'768;
  WordCache cache;
  WordCache::Place place;
  for (int word = 0; word < kWords + 2; ++word) {
    const std::string text = StrCat("word", word);
    ASSERT_FALSE(cache.Find(text, place).has_value()) << word;
    cache.Insert(place, text, SymbolsOf(word));
    const auto found = cache.Find(text, place);
    ASSERT_TRUE(found.has_value());
    ASSERT_EQ(found->size(), SymbolsOf(word).size());
    for (const Symbol& symbol : *found) ASSERT_EQ(symbol.id, word);
    if (word == kWords - 1) {
      for (int known = 0; known < kWords; ++known) {
        ASSERT_TRUE(cache.Find(StrCat("word", known), place).has_value()) << known;
      }
    }
  }
  EXPECT_FALSE(cache.Find("word0", place).has_value());
  EXPECT_TRUE(cache.Find(StrCat("word", kWords), place).has_value());
}

TEST(WordCacheTest, TellsWordsOfEverySizeApart) {
  WordCache cache;
  WordCache::Place place;
  for (size_t size = 0; size <= WordCache::kWordBytesMax; ++size) {
    for (const char letter : {'\0', 'x'}) {
      const std::string word(size, letter);
      if (size == 0 && letter == 'x') continue;
      ASSERT_FALSE(cache.Find(word, place).has_value()) << size;
      cache.Insert(place, word, SymbolsOf(1));
      ASSERT_TRUE(cache.Find(word, place).has_value()) << size;
    }
  }
}

}  // namespace
}  // namespace gantry
