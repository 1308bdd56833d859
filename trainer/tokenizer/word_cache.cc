#include "trainer/tokenizer/word_cache.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace gantry {
namespace {

uint64_t Mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Not for untrusted keys: whoever makes words collide slows only his own texts down.
uint64_t HashOf(std::string_view word) {
  constexpr uint64_t kFirst = 0x9E3779B97F4A7C15;
  constexpr uint64_t kSecond = 0xD6E8FEB86659FD93;
  uint64_t hash = word.size() * kFirst;
  const char* at = word.data();
  size_t rest = word.size();
  for (; rest >= sizeof(uint64_t); rest -= sizeof(uint64_t), at += sizeof(uint64_t)) {
    uint64_t bytes;
    std::memcpy(&bytes, at, sizeof(bytes));
    hash = Mix(hash ^ bytes, kSecond);
  }
  uint64_t bytes = 0;
  std::memcpy(&bytes, at, rest);
  return Mix(hash ^ bytes, kFirst);
}

}  // namespace

std::optional<std::span<const Symbol>> WordCache::Find(std::string_view word, Place& place) const {
  const uint64_t hash = HashOf(word);
  place.hash = hash;
  // At most half of the slots are taken: the loop ends.
  for (size_t at = hash % kSlots;; at = (at + 1) % kSlots) {
    const Slot& slot = slots_[at];
    if (slot.symbols_end == 0) {
      place.slot = at;
      return std::nullopt;
    }
    if (slot.hash == hash && slot.word_size == word.size() &&
        std::memcmp(texts_.data() + slot.word_begin, word.data(), word.size()) == 0) {
      place.slot = at;
      return std::span(symbols_).subspan(slot.symbols_begin, slot.symbols_end - slot.symbols_begin);
    }
  }
}

void WordCache::Insert(Place place, std::string_view word, std::span<const Symbol> symbols) {
  GANTRY_CHECK(word.size() <= kWordBytesMax);
  if (words_ == kWordsMax) {
    std::fill(slots_.begin(), slots_.end(), Slot());
    words_ = 0;
    texts_.clear();
    symbols_.resize(1);
    place.slot = place.hash % kSlots;
  }
  Slot& slot = slots_[place.slot];
  GANTRY_CHECK(slot.symbols_end == 0);
  slot.hash = place.hash;
  slot.word_begin = static_cast<uint32_t>(texts_.size());
  slot.word_size = static_cast<uint32_t>(word.size());
  slot.symbols_begin = static_cast<uint32_t>(symbols_.size());
  texts_.append(word);
  symbols_.insert(symbols_.end(), symbols.begin(), symbols.end());
  slot.symbols_end = static_cast<uint32_t>(symbols_.size());
  ++words_;
}

}  // namespace gantry
