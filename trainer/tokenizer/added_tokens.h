// The added tokens of tokenizer.json: texts that are tokens wherever they occur, found before the
// rest of the text is normalized, or (those marked `normalized`) after.
#ifndef GANTRY_TRAINER_TOKENIZER_ADDED_TOKENS_H_
#define GANTRY_TRAINER_TOKENIZER_ADDED_TOKENS_H_

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/tokenizer/json_view.h"
#include "trainer/tokenizer/text_pieces.h"

namespace gantry {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // not beside a word character
  bool lstrip = false;       // takes the white space on its left
  bool rstrip = false;
  bool normalized = true;  // is looked for in the normalized text, in its own normalized form
  bool special = false;
};

// The list under `added_tokens`. Errors: kInvalidArgument: fields, no content, a content or an id
// that is there twice.
absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const JsonView& json);

// Finds tokens in texts: of those that begin first, the longest. Immutable and thread-safe.
class AddedTokenMatcher {
 public:
  // Adds a token that `pattern` stands for. REQUIRES: pattern is not empty, and not there yet.
  void Add(std::string_view pattern, const AddedToken& token);

  bool empty() const { return tokens_.empty(); }
  // Makes each occurrence in a piece that is no token a piece of its own.
  void Apply(TextPieces& pieces) const;

 private:
  static constexpr int32_t kNone = -1;

  struct Match {
    size_t begin;
    size_t end;
    const AddedToken* token;
  };
  // The first match in text[at...), or one without a token.
  Match Find(std::string_view text, size_t at) const;
  static bool IsBesideWord(std::string_view text, const Match& match);
  void Split(std::string_view text, const TextPiece& piece, std::vector<TextPiece>& out) const;

  std::vector<AddedToken> tokens_;
  // A trie of bytes. Nodes are numbered from 0, the root; an edge's key is its node and byte.
  std::unordered_map<uint64_t, int32_t> edges_;
  std::vector<int32_t> token_of_node_ = {kNone};  // an index into tokens_
  std::bitset<256> first_bytes_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_ADDED_TOKENS_H_
