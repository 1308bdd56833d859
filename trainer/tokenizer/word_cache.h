// Words whose tokens are known, so that a frequent word is merged once. One thread at a time.
#ifndef GANTRY_TRAINER_TOKENIZER_WORD_CACHE_H_
#define GANTRY_TRAINER_TOKENIZER_WORD_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gantry {

// A token and the bytes of its word that it stands for.
struct Symbol {
  int32_t id;
  uint32_t size;
};

// Holds up to 32,768 words of up to 64 bytes, some 4 MiB; one more, and it begins anew.
class WordCache {
 public:
  static constexpr size_t kWordBytesMax = 64;

  WordCache() : slots_(kSlots) {}

  // Where a word is or would be. Valid until the next Insert.
  struct Place {
    uint64_t hash;
    size_t slot;
  };

  // REQUIRES: word.size() <= kWordBytesMax. Finds the word's place, and gives its symbols if it is
  // there; they are valid until the next Insert.
  std::optional<std::span<const Symbol>> Find(std::string_view word, Place& place) const;
  // REQUIRES: Find has just given `place` for `word`, and no symbols.
  void Insert(Place place, std::string_view word, std::span<const Symbol> symbols);

 private:
  static constexpr size_t kSlots = 65'536;  // a power of two
  static constexpr size_t kWordsMax = kSlots / 2;

  struct Slot {
    uint64_t hash = 0;
    uint32_t word_begin = 0;
    uint32_t word_size = 0;
    uint32_t symbols_begin = 0;
    uint32_t symbols_end = 0;  // 0: free; words have symbols, or begin is after the first
  };

  std::vector<Slot> slots_;
  size_t words_ = 0;
  std::string texts_;
  std::vector<Symbol> symbols_ = {{0, 0}};  // so that no word's symbols end at 0
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_WORD_CACHE_H_
