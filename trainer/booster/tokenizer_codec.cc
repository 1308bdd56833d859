#include "trainer/booster/tokenizer_codec.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/chat_template.h"
#include "trainer/chat_template/civil_time.h"
#include "trainer/chat_template/value.h"
#include "trainer/tokenizer/encoding.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/tokenizer_config.h"

namespace gantry {
namespace {

constexpr char kTokenizerFile[] = "tokenizer.json";
constexpr Bytes kTokenizerBytesMax = 256_MiB;

class TokenDecoder final : public TextDecoder {
 public:
  explicit TokenDecoder(const Tokenizer& tokenizer)
      : decoder_(tokenizer, {.skip_special_tokens = true}) {}
  std::string Next(int32_t token) override { return decoder_.Next(token); }
  std::string Finish() override { return decoder_.Finish(); }

 private:
  StreamingDecoder decoder_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TokenizerCodec>> TokenizerCodec::Load(FileCalls& files,
                                                                     const std::string& folder) {
  const std::string path = StrCat(folder, "/", kTokenizerFile);
  GANTRY_ASSIGN_OR_RETURN(const std::string json,
                          ReadFileToString(files, path, kTokenizerBytesMax));
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Parse(json);
  if (!tokenizer.ok()) {
    return MakeStatus(tokenizer.status().code(), path, ": ",
                      FromAbsl(tokenizer.status().message()));
  }
  GANTRY_ASSIGN_OR_RETURN(TokenizerConfig config, LoadTokenizerConfig(files, folder));
  std::optional<ChatTemplate> chat;
  const auto found = config.chat_templates.find("default");
  if (found != config.chat_templates.end()) {
    absl::StatusOr<ChatTemplate> compiled = ChatTemplate::Compile(found->second);
    if (!compiled.ok()) {
      return MakeStatus(compiled.status().code(), "the chat template of ", folder, ": ",
                        FromAbsl(compiled.status().message()));
    }
    chat = *std::move(compiled);
  }
  Hasher hasher;
  hasher.Update(json);
  return std::unique_ptr<TokenizerCodec>(new TokenizerCodec(
      *std::move(tokenizer), std::move(config), std::move(chat), hasher.HexDigest()));
}

absl::StatusOr<std::vector<int32_t>> TokenizerCodec::Encode(std::string_view text) const {
  GANTRY_ASSIGN_OR_RETURN(Encoding encoding, tokenizer_->Encode(text, {}));
  return std::move(encoding.ids);
}

std::unique_ptr<TextDecoder> TokenizerCodec::NewDecoder() const {
  return std::make_unique<TokenDecoder>(*tokenizer_);
}

absl::StatusOr<std::vector<int32_t>> TokenizerCodec::EncodeChat(std::string_view message,
                                                                CivilTime now) const {
  if (!chat_.has_value()) return FailedPrecondition("the model has no chat template");
  const Value user = Value::Dict({{Value::String("role"), Value::String("user")},
                                  {Value::String("content"), Value::String(message)}});
  GANTRY_ASSIGN_OR_RETURN(
      const RenderedChat rendered,
      chat_->Render(
          {.messages = Value::List({user}),
           .add_generation_prompt = true,
           .now = now,
           .variables = {
               {Value::String("bos_token"), Value::String(config_.bos_token.value_or(""))},
               {Value::String("eos_token"), Value::String(config_.eos_token.value_or(""))}}}));
  // The template writes all special tokens itself.
  GANTRY_ASSIGN_OR_RETURN(Encoding encoding,
                          tokenizer_->Encode(rendered.text, {.add_special_tokens = false}));
  return std::move(encoding.ids);
}

}  // namespace gantry
