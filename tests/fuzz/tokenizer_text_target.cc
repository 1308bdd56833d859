// Any bytes as a text for byte-level tokenizers like Llama 3's and for SentencePiece-like ones: a
// valid text comes back from its ids, and offsets cover the text from left to right.
//
// The first byte chooses the tokenizer; a text is taken when it is valid UTF-8.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/tokenizer/encoding.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/utf8.h"

namespace gantry {
namespace {

// All bytes are tokens; so are "ab", "abc" and " a" by merging.
std::string ByteLevelFile() {
  std::string vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_visible = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    // The invisible ones are numbered from U+0100.
    int before = 0;
    for (int other = 0; other < byte; ++other) {
      if (!((other >= '!' && other <= '~') || (other >= 0xA1 && other != 0xAD))) ++before;
    }
    std::string text = ToUtf8(static_cast<char32_t>(is_visible ? byte : 0x100 + before));
    if (text == "\"" || text == "\\") text.insert(0, "\\");
    vocabulary += "\"" + text + "\": " + std::to_string(byte) + ", ";
  }
  return R"({"added_tokens": [{"id": 259, "content": "<s>", "special": true}],
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": ")"
         R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|)"
         R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {)" +
         vocabulary + R"("ab": 256, "abc": 257, "Ġa": 258},
    "merges": ["a b", "ab c", "Ġ a"]}})";
}

std::string SentencePieceFile() {
  std::string vocabulary;
  constexpr char kDigits[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary += std::string("\"<0x") + kDigits[byte >> 4] + kDigits[byte & 15] +
                  ">\": " + std::to_string(byte) + ", ";
  }
  return R"({"added_tokens": [{"id": 261, "content": "<s>", "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "byte_fallback": true, "vocab": {)" +
         vocabulary + R"("▁": 256, "a": 257, "b": 258, "ab": 259, "▁a": 260},
    "merges": ["a b", "▁ a"]}})";
}

std::unique_ptr<Tokenizer> Parsed(const std::string& json) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Parse(json);
  GANTRY_CHECK_OK(tokenizer.status());
  return *std::move(tokenizer);
}

// Tokens of a broken character share its place; otherwise each begins where the last one ended.
void CheckOffsets(const Encoding& encoding, std::string_view text) {
  TextRange last;
  for (const TextRange& range : encoding.offsets) {
    GANTRY_CHECK(range == last || range.begin == last.end) << range.begin << " " << last.end;
    last = range;
  }
  GANTRY_CHECK(last.end == static_cast<int64_t>(text.size())) << last.end;
}

}  // namespace

bool Fuzz(std::string_view bytes) {
  static const std::unique_ptr<Tokenizer> byte_level = Parsed(ByteLevelFile());
  static const std::unique_ptr<Tokenizer> sentence_piece = Parsed(SentencePieceFile());
  if (bytes.empty()) return false;
  const bool is_byte_level = bytes[0] % 2 == 0;
  const Tokenizer& tokenizer = is_byte_level ? *byte_level : *sentence_piece;
  const std::string_view text = bytes.substr(1);
  const absl::StatusOr<Encoding> encoding = tokenizer.Encode(text, {.want_offsets = true});
  GANTRY_CHECK_OK(encoding.status());
  std::string valid;
  AppendValidUtf8(text, valid);
  const std::string decoded = tokenizer.Decode(encoding->ids, {.skip_special_tokens = false});
  if (is_byte_level) {
    CheckOffsets(*encoding, text);
    GANTRY_CHECK(decoded == valid) << decoded;
  } else if (valid.find("▁") == std::string::npos && valid.find("<s>") == std::string::npos) {
    GANTRY_CHECK(decoded == valid) << decoded;
  }
  return valid == text;
}

}  // namespace gantry
