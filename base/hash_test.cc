#include "base/hash.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash_kernels.h"
#include "base/random.h"

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

// Every compilation against the streaming digest, which is the baseline's, at every alignment that
// vector loads could mind.
TEST(HashTest, VariantsAreEqual) {
  const Random random({.seed = 1, .stream = 0});
  std::vector<std::byte> bytes((size_t{3} << 20) + 64);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random.Bits(i));
  std::vector<size_t> sizes;
  for (size_t size = 0; size <= 1025; ++size) sizes.push_back(size);
  for (uint64_t i = 0; i < 20; ++i) {
    sizes.push_back(static_cast<size_t>(random.Below(int64_t{3} << 20, i)));
  }
  sizes.push_back(size_t{1} << 20);
  const std::vector<HashVariant> variants = HashVariants();
  ASSERT_FALSE(variants.empty());
  EXPECT_EQ(variants.back().name, "baseline");
  for (const size_t size : sizes) {
    const size_t begin = size % 64;
    const std::span<const std::byte> part = std::span(bytes).subspan(begin, size);
    Hasher hasher;
    hasher.Update(part);
    for (const HashVariant& variant : variants) {
      ASSERT_EQ(variant.kernel(part.data(), part.size()), hasher.Digest64())
          << variant.name << ", " << size << " bytes";
    }
    ASSERT_EQ(Hash64(part), hasher.Digest64()) << size << " bytes";
  }
}

// On x86-64 both are compiled in, whatever this processor can run.
TEST(HashTest, KernelsForNewerProcessorsAreInTheProgram) {
#if defined(__x86_64__)
  EXPECT_NE(HashKernelAvx2(), nullptr);
  EXPECT_NE(HashKernelAvx512(), nullptr);
#else
  EXPECT_EQ(HashKernelAvx2(), nullptr);
  EXPECT_EQ(HashKernelAvx512(), nullptr);
#endif
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
