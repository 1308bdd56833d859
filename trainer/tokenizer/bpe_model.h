// Byte-pair encoding: a word's characters (or bytes) are joined, the pair of the lowest rank and
// then the leftmost first, until no neighbours have a rank.
#ifndef GANTRY_TRAINER_TOKENIZER_BPE_MODEL_H_
#define GANTRY_TRAINER_TOKENIZER_BPE_MODEL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/tokenizer/json_view.h"
#include "trainer/tokenizer/merge_table.h"
#include "trainer/tokenizer/vocabulary.h"
#include "trainer/tokenizer/word_cache.h"

namespace gantry {

// Working memory: one thread and one model at a time.
struct BpeScratch {
  WordCache cache;
  std::vector<Symbol> symbols;
  MergeScratch merges;
};

// Immutable and thread-safe.
class BpeModel {
 public:
  enum class Alphabet {
    kCharacters,
    kBytes,  // the file writes them as byte_alphabet.h says; words hold the bytes themselves
  };

  // From the member `model`. Errors: kInvalidArgument: fields, a merge of or to a token that does
  // not exist, dropout.
  static absl::StatusOr<std::unique_ptr<BpeModel>> Parse(const JsonView& json, Alphabet alphabet);

  // Appends a word's tokens. Bytes that no token stands for are left out. Time is n log n in the
  // word's size. REQUIRES: word is not empty, and valid UTF-8 unless the alphabet is of bytes.
  // Errors: kInvalidArgument: there is need for the unknown token, and the file has none of that
  // name.
  absl::Status Tokenize(std::string_view word, BpeScratch& scratch, std::vector<Symbol>& out) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  static constexpr int32_t kNone = -1;

  // A character of a word, and where it stands.
  struct Character {
    std::string_view text;
    bool is_first;
    bool is_last;
  };

  BpeModel(Vocabulary vocabulary, Alphabet alphabet)
      : vocabulary_(std::move(vocabulary)), alphabet_(alphabet) {}

  absl::Status ParseOptions(const JsonView& json);
  absl::Status ParseMerges(const JsonView& json);
  absl::Status AddMerge(const JsonView& entry, int32_t rank);
  absl::Status BuildTables(const JsonView& json);
  bool CanSplitBeforeMark() const;

  absl::Status TokenizeWord(std::string_view word, BpeScratch& scratch,
                            std::vector<Symbol>& out) const;
  absl::Status AddCharacters(std::string_view word, std::vector<Symbol>& symbols) const;
  // The token of one character, or kNone.
  int32_t TokenOf(const Character& character) const;
  // Appends the tokens of its bytes; false, and nothing, when one has none.
  bool AddBytes(const Character& character, std::vector<Symbol>& symbols) const;
  std::string WithAffixes(const Character& character) const;

  const Vocabulary vocabulary_;
  const Alphabet alphabet_;
  MergeTable merges_;

  std::string unknown_text_;
  bool has_unknown_ = false;
  int32_t unknown_ = kNone;  // its id; kNone also where the vocabulary lacks it
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  std::string prefix_;  // of each character but a word's first
  std::string suffix_;  // of a word's last

  std::unordered_map<char32_t, int32_t> characters_;  // tokens of one character
  std::array<int32_t, 256> bytes_;                    // with Alphabet::kBytes
  std::array<int32_t, 256> fallbacks_;                // "<0x00>" to "<0xFF>"
  // With Alphabet::kBytes, the tokens as bytes.
  std::unordered_map<std::string, int32_t> words_;
  // Merges never join something that ends otherwise with something that begins with this mark, so
  // that long texts can be cut there. Empty: no such.
  std::string mark_;
  bool joins_before_mark_ = false;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_BPE_MODEL_H_
