#include "trainer/tokenizer/utf8.h"

#include <algorithm>
#include <cstring>

#include "base/strings.h"

namespace gantry {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The size of a character that begins with `first`, and what its second byte may be; size 0: none.
struct Lead {
  size_t size;
  unsigned char second_least = 0x80;
  unsigned char second_most = 0xBF;
};

Lead LeadOf(unsigned char first) {
  if (first >= 0xC2 && first <= 0xDF) return {2};
  if (first == 0xE0) return {3, 0xA0};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first >= 0xE1 && first <= 0xEF) return {3};
  if (first == 0xF0) return {4, 0x90};
  if (first >= 0xF1 && first <= 0xF3) return {4};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

void AppendUtf8(char32_t character, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (character < 0x80) {
    put(character);
  } else if (character < 0x800) {
    put(0xC0 | character >> 6);
    put(0x80 | (character & 0x3F));
  } else if (character < 0x10000) {
    put(0xE0 | character >> 12);
    put(0x80 | (character >> 6 & 0x3F));
    put(0x80 | (character & 0x3F));
  } else {
    put(0xF0 | character >> 18);
    put(0x80 | (character >> 12 & 0x3F));
    put(0x80 | (character >> 6 & 0x3F));
    put(0x80 | (character & 0x3F));
  }
}

std::string ToUtf8(char32_t character) {
  std::string text;
  AppendUtf8(character, text);
  return text;
}

size_t ValidUtf8Size(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    // Eight ASCII bytes at a time.
    while (at + 8 <= text.size()) {
      uint64_t word;
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080) != 0) break;
      at += 8;
    }
    if (at == text.size()) break;
    const size_t size = Utf8SequenceSize(text.substr(at));
    if (size == 0) return at;
    at += size;
  }
  return at;
}

size_t BrokenUtf8Size(std::string_view text) {
  const Lead lead = LeadOf(static_cast<unsigned char>(text[0]));
  size_t size = 1;
  for (; size < std::min(lead.size, text.size()); ++size) {
    const auto byte = static_cast<unsigned char>(text[size]);
    const unsigned char least = size == 1 ? lead.second_least : 0x80;
    const unsigned char most = size == 1 ? lead.second_most : 0xBF;
    if (byte < least || byte > most) break;
  }
  return size;
}

bool IsUnfinishedUtf8(std::string_view text) {
  return BrokenUtf8Size(text) == text.size() &&
         text.size() < LeadOf(static_cast<unsigned char>(text[0])).size;
}

void AppendValidUtf8(std::string_view text, std::string& out) {
  while (true) {
    const size_t valid = ValidUtf8Size(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) return;
    out.append(kReplacement);
    text.remove_prefix(BrokenUtf8Size(text));
  }
}

MendedText MendUtf8(std::string_view text) {
  MendedText mended;
  size_t at = 0;
  while (at < text.size()) {
    const size_t valid = ValidUtf8Size(text.substr(at));
    for (size_t i = 0; i < valid; ++i) mended.origins.push_back(static_cast<uint32_t>(at + i));
    mended.text.append(text.substr(at, valid));
    at += valid;
    if (at == text.size()) break;
    mended.text.append(kReplacement);
    mended.origins.insert(mended.origins.end(), kReplacement.size(), static_cast<uint32_t>(at));
    at += BrokenUtf8Size(text.substr(at));
  }
  mended.origins.push_back(static_cast<uint32_t>(at));
  return mended;
}

}  // namespace gantry
