#include "trainer/tokenizer/bpe_model.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/tokenizer/utf8.h"

namespace gantry {
namespace {

constexpr std::string_view kMark = "▁";
constexpr char kHexDigits[] = "0123456789ABCDEF";

std::string FallbackText(unsigned byte) {
  return StrCat("<0x", kHexDigits[byte >> 4], kHexDigits[byte & 15], ">");
}

bool BeginsWith(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// The two sides of a merge: "a b", or ["a", "b"].
struct MergeTexts {
  std::string left;
  std::string right;
};

absl::StatusOr<MergeTexts> ParseMerge(const JsonView& entry) {
  if (entry.value().is_array()) {
    if (entry.value().size() != 2) return entry.Error("it must be two tokens");
    GANTRY_ASSIGN_OR_RETURN(std::string left, entry.At(0).Text());
    GANTRY_ASSIGN_OR_RETURN(std::string right, entry.At(1).Text());
    return MergeTexts{std::move(left), std::move(right)};
  }
  GANTRY_ASSIGN_OR_RETURN(const std::string text, entry.Text());
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    return entry.Error("it must be two tokens with a space between them");
  }
  return MergeTexts{text.substr(0, space), text.substr(space + 1)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<BpeModel>> BpeModel::Parse(const JsonView& json, Alphabet alphabet) {
  GANTRY_ASSIGN_OR_RETURN(const JsonView vocabulary_field, json.Member("vocab"));
  GANTRY_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Parse(vocabulary_field));
  std::unique_ptr<BpeModel> model(new BpeModel(std::move(vocabulary), alphabet));
  GANTRY_RETURN_IF_ERROR(model->ParseOptions(json));
  GANTRY_ASSIGN_OR_RETURN(const JsonView merges, json.Member("merges"));
  GANTRY_RETURN_IF_ERROR(model->ParseMerges(merges));
  GANTRY_RETURN_IF_ERROR(model->BuildTables(json));
  return model;
}

absl::Status BpeModel::ParseOptions(const JsonView& json) {
  if (const auto dropout = json.Find("dropout");
      dropout.has_value() && !(dropout->value().is_number() && dropout->value() == 0.0)) {
    return dropout->Error("dropout is not supported");
  }
  GANTRY_ASSIGN_OR_RETURN(unknown_text_, json.TextOr("unk_token", ""));
  has_unknown_ = json.Find("unk_token").has_value();
  if (has_unknown_) unknown_ = vocabulary_.Find(unknown_text_).value_or(kNone);
  GANTRY_ASSIGN_OR_RETURN(prefix_, json.TextOr("continuing_subword_prefix", ""));
  GANTRY_ASSIGN_OR_RETURN(suffix_, json.TextOr("end_of_word_suffix", ""));
  GANTRY_ASSIGN_OR_RETURN(fuse_unknown_, json.FlagOr("fuse_unk", false));
  GANTRY_ASSIGN_OR_RETURN(byte_fallback_, json.FlagOr("byte_fallback", false));
  GANTRY_ASSIGN_OR_RETURN(ignore_merges_, json.FlagOr("ignore_merges", false));
  return absl::OkStatus();
}

absl::Status BpeModel::ParseMerges(const JsonView& json) {
  GANTRY_RETURN_IF_ERROR(json.ExpectList());
  const size_t count = json.value().size();
  if (count > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return json.Error("that is too many");
  }
  merges_.Reserve(count);
  int32_t rank = 0;
  for (size_t i = 0; i < count; ++i) {
    // What merges.txt begins with.
    const nlohmann::json& value = json.value()[i];
    if (value.is_string() && BeginsWith(value.get_ref<const std::string&>(), "#version")) {
      continue;
    }
    GANTRY_RETURN_IF_ERROR(AddMerge(json.At(i), rank++));
  }
  return absl::OkStatus();
}

absl::Status BpeModel::AddMerge(const JsonView& entry, int32_t rank) {
  GANTRY_ASSIGN_OR_RETURN(const MergeTexts texts, ParseMerge(entry));
  const std::optional<int32_t> left = vocabulary_.Find(texts.left);
  const std::optional<int32_t> right = vocabulary_.Find(texts.right);
  if (!left.has_value() || !right.has_value()) {
    return entry.Error(
        StrCat("'", left.has_value() ? texts.right : texts.left, "' is not in the vocabulary"));
  }
  // A prefix is written once, where the joined token has it.
  if (texts.right.size() < prefix_.size()) {
    return entry.Error(StrCat("its second token is shorter than the prefix '", prefix_, "'"));
  }
  const std::string joined = texts.left + texts.right.substr(prefix_.size());
  const std::optional<int32_t> token = vocabulary_.Find(joined);
  if (!token.has_value()) {
    return entry.Error(StrCat("'", joined, "' is not in the vocabulary"));
  }
  if (BeginsWith(texts.right, kMark) && !EndsWith(texts.left, kMark)) joins_before_mark_ = true;
  merges_.Add(*left, *right, {static_cast<uint32_t>(rank), *token});
  return absl::OkStatus();
}

absl::Status BpeModel::BuildTables(const JsonView& json) {
  bytes_.fill(kNone);
  fallbacks_.fill(kNone);
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string text = ToUtf8(CharacterOfByte(static_cast<unsigned char>(byte)));
    bytes_[byte] = vocabulary_.Find(text).value_or(kNone);
    fallbacks_[byte] = vocabulary_.Find(FallbackText(byte)).value_or(kNone);
    if (alphabet_ == Alphabet::kBytes && byte_fallback_ && bytes_[byte] == kNone) {
      return json.Error(StrCat("byte_fallback with ByteLevel is supported only for a vocabulary ",
                               "that holds all bytes; '", text, "' is missing"));
    }
  }
  for (const auto& [text, id] : vocabulary_.ids()) {
    if (alphabet_ == Alphabet::kBytes) {
      std::optional<std::string> bytes = BytesOfText(text);
      if (bytes.has_value()) words_.emplace(*std::move(bytes), id);
    } else if (!text.empty() && CharacterAt(text, 0).size == text.size()) {
      characters_.emplace(CharacterAt(text, 0).value, id);
    }
  }
  if (CanSplitBeforeMark()) mark_ = kMark;
  return absl::OkStatus();
}

bool BpeModel::CanSplitBeforeMark() const {
  return alphabet_ == Alphabet::kCharacters && !ignore_merges_ && prefix_.empty() &&
         suffix_.empty() && vocabulary_.Find(kMark).has_value() && !joins_before_mark_;
}

absl::Status BpeModel::Tokenize(std::string_view word, BpeScratch& scratch,
                                std::vector<Symbol>& out) const {
  if (mark_.empty()) return TokenizeWord(word, scratch, out);
  size_t begin = 0;
  while (begin < word.size()) {
    // Past the marks that it begins with, up to the next one.
    size_t end = begin;
    while (BeginsWith(word.substr(end), mark_)) end += mark_.size();
    end = std::min(word.find(mark_, end), word.size());
    GANTRY_RETURN_IF_ERROR(TokenizeWord(word.substr(begin, end - begin), scratch, out));
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status BpeModel::TokenizeWord(std::string_view word, BpeScratch& scratch,
                                    std::vector<Symbol>& out) const {
  const bool is_cached = word.size() <= WordCache::kWordBytesMax;
  WordCache::Place place;
  if (is_cached) {
    if (const auto found = scratch.cache.Find(word, place); found.has_value()) {
      out.insert(out.end(), found->begin(), found->end());
      return absl::OkStatus();
    }
  }
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  std::optional<int32_t> whole;
  if (ignore_merges_ && alphabet_ == Alphabet::kCharacters) whole = vocabulary_.Find(word);
  if (ignore_merges_ && alphabet_ == Alphabet::kBytes) {
    const auto entry = words_.find(std::string(word));
    if (entry != words_.end()) whole = entry->second;
  }
  if (whole.has_value()) {
    symbols.push_back({*whole, static_cast<uint32_t>(word.size())});
  } else {
    GANTRY_RETURN_IF_ERROR(AddCharacters(word, symbols));
    merges_.MergeAll(symbols, scratch.merges);
  }
  if (is_cached) scratch.cache.Insert(place, word, symbols);
  out.insert(out.end(), symbols.begin(), symbols.end());
  return absl::OkStatus();
}

// Unknown characters are told only when a known one follows, or the word ends; bytes that stand for
// a character come before them. So the reference has it.
absl::Status BpeModel::AddCharacters(std::string_view word, std::vector<Symbol>& symbols) const {
  std::optional<Symbol> unknown;
  for (size_t at = 0; at < word.size();) {
    const size_t size = alphabet_ == Alphabet::kBytes ? 1 : CharacterAt(word, at).size;
    const Character character = {word.substr(at, size), at == 0, at + size == word.size()};
    at += size;
    const int32_t token = TokenOf(character);
    if (token != kNone) {
      if (unknown.has_value()) symbols.push_back(*unknown);
      unknown.reset();
      symbols.push_back({token, static_cast<uint32_t>(size)});
      continue;
    }
    if (byte_fallback_ && AddBytes(character, symbols)) continue;
    if (!has_unknown_) continue;
    if (unknown_ == kNone) {
      return InvalidArgument("a character has no token, and model.unk_token, '", unknown_text_,
                             "', is not in the vocabulary");
    }
    if (unknown.has_value() && fuse_unknown_) {
      unknown->size += static_cast<uint32_t>(size);
    } else {
      if (unknown.has_value()) symbols.push_back(*unknown);
      unknown = Symbol{unknown_, static_cast<uint32_t>(size)};
    }
  }
  if (unknown.has_value()) symbols.push_back(*unknown);
  return absl::OkStatus();
}

int32_t BpeModel::TokenOf(const Character& character) const {
  if (!prefix_.empty() || !suffix_.empty()) {
    return vocabulary_.Find(WithAffixes(character)).value_or(kNone);
  }
  if (alphabet_ == Alphabet::kBytes) return bytes_[static_cast<unsigned char>(character.text[0])];
  const auto entry = characters_.find(CharacterAt(character.text, 0).value);
  return entry == characters_.end() ? kNone : entry->second;
}

bool BpeModel::AddBytes(const Character& character, std::vector<Symbol>& symbols) const {
  const std::string text = WithAffixes(character);
  for (const char byte : text) {
    if (fallbacks_[static_cast<unsigned char>(byte)] == kNone) return false;
  }
  for (const char byte : text) symbols.push_back({fallbacks_[static_cast<unsigned char>(byte)], 1});
  return true;
}

std::string BpeModel::WithAffixes(const Character& character) const {
  std::string text = character.is_first ? "" : prefix_;
  if (alphabet_ == Alphabet::kBytes) {
    AppendUtf8(CharacterOfByte(static_cast<unsigned char>(character.text[0])), text);
  } else {
    text += character.text;
  }
  if (character.is_last) text += suffix_;
  return text;
}

}  // namespace gantry
