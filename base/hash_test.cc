#include "base/hash.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace gantry {
namespace {

std::span<const std::byte> AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string Hex(std::string_view text) {
  Hasher hasher;
  hasher.Update(text);
  return hasher.HexDigest();
}

// Long enough to pass xxhash's internal buffers (256 B) and stripes (1 KiB blocks).
std::string LongText() {
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += static_cast<char>((i * 131) ^ (i >> 5));
  return text;
}

// Stored digests must never change: these are XXH3's own for 128 bits and seed 0.
TEST(HashTest, MatchesPublishedValues) {
  EXPECT_EQ(Hex(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Hex("abc"), "06b05ab6733a618578af5f94892f3950");
}

TEST(HashTest, TheSplitOverUpdatesDoesNotMatter) {
  const std::string text = LongText();
  const std::string whole = Hex(text);
  for (const size_t piece : {1u, 7u, 64u, 255u, 256u, 257u, 1024u, 9999u}) {
    Hasher hasher;
    for (size_t begin = 0; begin < text.size(); begin += piece) {
      hasher.Update(std::string_view(text).substr(begin, piece));
      hasher.Update(std::span<const std::byte>());
    }
    EXPECT_EQ(hasher.HexDigest(), whole) << piece;
  }
}

TEST(HashTest, EveryByteCounts) {
  std::string text = LongText().substr(0, 600);
  std::set<std::string> digests = {Hex(text)};
  for (char& c : text) {
    c = static_cast<char>(c ^ 1);
    digests.insert(Hex(text));
    c = static_cast<char>(c ^ 1);
  }
  EXPECT_EQ(digests.size(), 601u);
}

TEST(HashTest, TheLengthCounts) {
  std::set<std::string> digests;
  for (size_t size = 0; size <= 600; ++size) digests.insert(Hex(std::string(size, '\0')));
  EXPECT_EQ(digests.size(), 601u);
}

TEST(HashTest, Digest64IsTheLowHalfOfTheHexDigest) {
  for (const std::string& text : {std::string(), std::string("abc"), LongText()}) {
    Hasher hasher;
    hasher.Update(text);
    EXPECT_EQ(hasher.Digest64(), std::stoull(hasher.HexDigest().substr(16), nullptr, 16));
    EXPECT_EQ(hasher.Digest64(), Hash64(AsBytes(text)));
  }
}

TEST(HashTest, DigestsDoNotEndTheStream) {
  Hasher hasher;
  hasher.Update("a");
  EXPECT_EQ(hasher.HexDigest(), Hex("a"));
  hasher.Update("bc");
  EXPECT_EQ(hasher.HexDigest(), Hex("abc"));
  EXPECT_EQ(hasher.HexDigest(), Hex("abc"));
}

TEST(HashTest, MovesTakeTheStateAlong) {
  Hasher first;
  first.Update("a");
  Hasher second = std::move(first);
  second.Update("bc");
  EXPECT_EQ(second.HexDigest(), Hex("abc"));
  first = Hasher();
  EXPECT_EQ(first.HexDigest(), Hex(""));
}

TEST(HashDeathTest, MovedFromHashersAreRefused) {
  Hasher first;
  const Hasher second = std::move(first);
  EXPECT_DEATH(first.Update("a"), "moved-from");
  EXPECT_DEATH(static_cast<void>(first.Digest64()), "moved-from");
}

}  // namespace
}  // namespace gantry
