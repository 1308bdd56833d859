// The steps of a tokenizer, as its file lists them, and running a text through them.
#ifndef GANTRY_TRAINER_TOKENIZER_TOKENIZER_PIPELINE_H_
#define GANTRY_TRAINER_TOKENIZER_TOKENIZER_PIPELINE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "trainer/tokenizer/added_tokens.h"
#include "trainer/tokenizer/bpe_model.h"
#include "trainer/tokenizer/decoder.h"
#include "trainer/tokenizer/encoding.h"
#include "trainer/tokenizer/json_view.h"
#include "trainer/tokenizer/normalizer.h"
#include "trainer/tokenizer/post_processor.h"
#include "trainer/tokenizer/pre_tokenizer.h"

namespace gantry {

// Thread-safe; see Tokenizer, whose methods these are.
class TokenizerPipeline {
 public:
  static absl::StatusOr<std::unique_ptr<TokenizerPipeline>> Parse(std::string_view json);

  absl::StatusOr<Encoding> Encode(std::string_view text, EncodeOptions options) const;
  std::unique_ptr<DecodeStream> BeginDecoding() const { return decoder_->Begin(); }
  // What decoding makes text of; nothing for ids without a token, and those to be skipped.
  std::optional<std::string_view> DecodedToken(int32_t id, DecodeOptions options) const;

  std::optional<int32_t> TokenId(std::string_view text) const;
  std::string_view TokenText(int32_t id) const;
  bool IsSpecial(int32_t id) const;
  std::span<const int32_t> special_ids() const { return special_ids_; }
  int64_t vocabulary_size() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  struct Token {
    bool exists = false;
    bool is_special = false;
    std::string_view text;  // in the model's vocabulary or added_texts_
  };

  // Working memory of one Encode.
  struct Scratch {
    TextPieces pieces;
    RegexScratch regex;
    BpeScratch bpe;
    std::vector<Symbol> symbols;
    std::vector<TokenSpaces> spaces;
  };

  TokenizerPipeline() = default;

  absl::Status ParseModel(const JsonView& json);
  absl::Status ParseSteps(const JsonView& json);
  absl::Status AddTokens(const JsonView& json);
  absl::Status AddToken(const JsonView& entry, const AddedToken& token);
  absl::StatusOr<std::string> Normalized(std::string_view text) const;

  // Encodes valid UTF-8; the offsets are into it.
  absl::StatusOr<Encoding> EncodeValid(std::string_view text, EncodeOptions options) const;
  absl::Status Run(std::string_view text, EncodeOptions options, Scratch& scratch,
                   Encoding& encoding) const;
  absl::Status AddPiece(const TextPiece& piece, EncodeOptions options, Scratch& scratch,
                        Encoding& encoding) const;

  std::unique_ptr<Scratch> TakeScratch() const;
  void GiveScratch(std::unique_ptr<Scratch> scratch) const;

  std::unique_ptr<BpeModel> model_;
  std::unique_ptr<Normalizer> normalizer_;  // null: none, as the next two
  ParsedPreTokenizer pre_tokenizer_;
  std::unique_ptr<PostProcessor> post_processor_;
  std::unique_ptr<Decoder> decoder_;

  AddedTokenMatcher raw_matcher_;
  AddedTokenMatcher normalized_matcher_;
  std::unordered_map<std::string, int32_t> added_ids_;
  std::unordered_map<int32_t, std::string> added_texts_;  // does not move its values
  int32_t added_id_max_ = -1;
  std::vector<Token> tokens_;  // by id
  std::vector<int32_t> special_ids_;

  mutable Mutex mutex_;
  // As many as calls have run at the same time.
  mutable std::vector<std::unique_ptr<Scratch>> idle_ GANTRY_GUARDED_BY(mutex_);
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_TOKENIZER_PIPELINE_H_
