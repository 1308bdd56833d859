// A model's tokenizer as a TextCodec, with its chat template.
#ifndef GANTRY_TRAINER_BOOSTER_TOKENIZER_CODEC_H_
#define GANTRY_TRAINER_BOOSTER_TOKENIZER_CODEC_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "trainer/booster/text_codec.h"
#include "trainer/chat_template/chat_template.h"
#include "trainer/chat_template/civil_time.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/tokenizer_config.h"

namespace gantry {

// Immutable and thread-safe.
class TokenizerCodec final : public TextCodec {
 public:
  // Reads tokenizer.json, tokenizer_config.json and the chat template of a model's folder. Errors:
  // kNotFound without tokenizer.json; those of reading and parsing, with the file.
  static absl::StatusOr<std::unique_ptr<TokenizerCodec>> Load(FileCalls& files,
                                                              const std::string& folder);

  // With the tokens that the tokenizer adds by default.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const override;
  std::unique_ptr<TextDecoder> NewDecoder() const override;
  int64_t vocabulary_size() const override { return tokenizer_->vocabulary_size(); }

  // A conversation of one message by the user, up to where the assistant's answer begins. `now` is
  // what the template sees. Errors: kFailedPrecondition for a model without a chat template; those
  // of the template.
  absl::StatusOr<std::vector<int32_t>> EncodeChat(std::string_view message, CivilTime now) const;

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const TokenizerConfig& config() const { return config_; }
  const ChatTemplate* chat_template() const { return chat_.has_value() ? &*chat_ : nullptr; }
  // Of tokenizer.json: tells whether it is the same tokenizer.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  TokenizerCodec(std::unique_ptr<Tokenizer> tokenizer, TokenizerConfig config,
                 std::optional<ChatTemplate> chat, std::string fingerprint)
      : tokenizer_(std::move(tokenizer)),
        config_(std::move(config)),
        chat_(std::move(chat)),
        fingerprint_(std::move(fingerprint)) {}

  std::unique_ptr<Tokenizer> tokenizer_;
  TokenizerConfig config_;
  std::optional<ChatTemplate> chat_;
  std::string fingerprint_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_TOKENIZER_CODEC_H_
