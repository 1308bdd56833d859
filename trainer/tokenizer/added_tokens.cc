#include "trainer/tokenizer/added_tokens.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "trainer/tokenizer/unicode.h"
#include "trainer/tokenizer/utf8.h"

namespace gantry {
namespace {

uint64_t EdgeKey(int32_t node, char byte) {
  return static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(byte);
}

absl::StatusOr<AddedToken> ParseAddedToken(const JsonView& json) {
  AddedToken token;
  GANTRY_ASSIGN_OR_RETURN(const JsonView id, json.Member("id"));
  GANTRY_ASSIGN_OR_RETURN(const int64_t number,
                          id.Integer(0, std::numeric_limits<int32_t>::max() - 1));
  token.id = static_cast<int32_t>(number);
  GANTRY_ASSIGN_OR_RETURN(const JsonView content, json.Member("content"));
  GANTRY_ASSIGN_OR_RETURN(token.content, content.Text());
  if (token.content.empty()) return content.Error("it must not be empty");
  GANTRY_ASSIGN_OR_RETURN(token.single_word, json.FlagOr("single_word", false));
  GANTRY_ASSIGN_OR_RETURN(token.lstrip, json.FlagOr("lstrip", false));
  GANTRY_ASSIGN_OR_RETURN(token.rstrip, json.FlagOr("rstrip", false));
  GANTRY_ASSIGN_OR_RETURN(token.special, json.FlagOr("special", false));
  GANTRY_ASSIGN_OR_RETURN(token.normalized, json.FlagOr("normalized", !token.special));
  return token;
}

}  // namespace

absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const JsonView& json) {
  GANTRY_RETURN_IF_ERROR(json.ExpectList());
  std::vector<AddedToken> tokens;
  std::set<std::string> contents;
  std::set<int32_t> ids;
  for (size_t i = 0; i < json.value().size(); ++i) {
    const JsonView entry = json.At(i);
    GANTRY_ASSIGN_OR_RETURN(AddedToken token, ParseAddedToken(entry));
    if (!contents.insert(token.content).second) return entry.Error("its content is there twice");
    if (!ids.insert(token.id).second) return entry.Error("its id is there twice");
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void AddedTokenMatcher::Add(std::string_view pattern, const AddedToken& token) {
  GANTRY_CHECK(!pattern.empty());
  first_bytes_.set(static_cast<unsigned char>(pattern[0]));
  int32_t node = 0;
  for (const char byte : pattern) {
    const auto next = static_cast<int32_t>(token_of_node_.size());
    const auto [edge, is_new] = edges_.emplace(EdgeKey(node, byte), next);
    if (is_new) token_of_node_.push_back(kNone);
    node = edge->second;
  }
  // Of two tokens with the same normalized form the first one counts.
  int32_t& place = token_of_node_[static_cast<size_t>(node)];
  if (place != kNone) return;
  place = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

AddedTokenMatcher::Match AddedTokenMatcher::Find(std::string_view text, size_t at) const {
  for (; at < text.size(); ++at) {
    if (!first_bytes_[static_cast<unsigned char>(text[at])]) continue;
    Match match = {at, at, nullptr};
    int32_t node = 0;
    for (size_t end = at; end < text.size();) {
      const auto edge = edges_.find(EdgeKey(node, text[end]));
      if (edge == edges_.end()) break;
      node = edge->second;
      ++end;
      const int32_t token = token_of_node_[static_cast<size_t>(node)];
      if (token != kNone) match = {at, end, &tokens_[static_cast<size_t>(token)]};
    }
    if (match.token != nullptr) return match;
  }
  return {at, at, nullptr};
}

bool AddedTokenMatcher::IsBesideWord(std::string_view text, const Match& match) {
  if (match.begin > 0 &&
      IsWordCharacter(CharacterAt(text, PreviousCharacter(text, match.begin)).value)) {
    return true;
  }
  return match.end < text.size() && IsWordCharacter(CharacterAt(text, match.end).value);
}

void AddedTokenMatcher::Split(std::string_view text, const TextPiece& piece,
                              std::vector<TextPiece>& out) const {
  const auto put = [&](size_t begin, size_t end, int32_t token) {
    out.push_back({static_cast<uint32_t>(piece.begin + begin),
                   static_cast<uint32_t>(piece.begin + end), token});
  };
  size_t done = 0;
  size_t at = 0;
  while (true) {
    Match match = Find(text, at);
    if (match.token == nullptr) break;
    at = match.end;
    if (match.token->single_word && IsBesideWord(text, match)) continue;
    if (match.token->lstrip) {
      while (match.begin > done) {
        const size_t previous = PreviousCharacter(text, match.begin);
        if (!IsWhitespace(CharacterAt(text, previous).value)) break;
        match.begin = previous;
      }
      // White space that the match before has taken stays there.
      match.begin = std::max(match.begin, done);
    }
    if (match.token->rstrip) {
      while (match.end < text.size() && IsWhitespace(CharacterAt(text, match.end).value)) {
        match.end += CharacterAt(text, match.end).size;
      }
    }
    if (done < match.begin) put(done, match.begin, TextPiece::kNoToken);
    put(match.begin, match.end, match.token->id);
    done = match.end;
  }
  if (done < text.size()) put(done, text.size(), TextPiece::kNoToken);
}

void AddedTokenMatcher::Apply(TextPieces& pieces) const {
  if (empty()) return;
  const std::string_view text = pieces.text();
  // Most texts hold none.
  if (Find(text, 0).token == nullptr) return;
  pieces.SplitEach([&](const TextPiece& piece, std::vector<TextPiece>& out) {
    Split(pieces.TextOf(piece), piece, out);
  });
}

}  // namespace gantry
