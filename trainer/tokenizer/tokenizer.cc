#include "trainer/tokenizer/tokenizer.h"

#include <utility>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/tokenizer/decoder.h"
#include "trainer/tokenizer/tokenizer_pipeline.h"

namespace gantry {
namespace {

constexpr std::string_view kFileName = "tokenizer.json";
constexpr int64_t kFileBytesMax = int64_t{256} << 20;

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<TokenizerPipeline> pipeline)
    : pipeline_(std::move(pipeline)) {}

Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(FileCalls& files,
                                                           const std::string& path) {
  const bool is_file = path.size() >= 5 && path.compare(path.size() - 5, 5, ".json") == 0;
  const std::string file = is_file ? path : StrCat(path, "/", kFileName);
  GANTRY_ASSIGN_OR_RETURN(const std::string text,
                          ReadFileToString(files, file, Bytes(kFileBytesMax)));
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Parse(text);
  if (!tokenizer.ok()) {
    return MakeStatus(tokenizer.status().code(), file, ": ", tokenizer.status().message());
  }
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Parse(std::string_view json) {
  GANTRY_ASSIGN_OR_RETURN(auto pipeline, TokenizerPipeline::Parse(json));
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(pipeline)));
}

absl::StatusOr<Encoding> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  return pipeline_->Encode(text, options);
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, DecodeOptions options) const {
  std::string text;
  const std::unique_ptr<DecodeStream> stream = pipeline_->BeginDecoding();
  for (const int32_t id : ids) {
    const std::optional<std::string_view> token = pipeline_->DecodedToken(id, options);
    if (token.has_value()) stream->Next(*token, text);
  }
  stream->Finish(text);
  return text;
}

std::optional<int32_t> Tokenizer::TokenId(std::string_view text) const {
  return pipeline_->TokenId(text);
}

std::string_view Tokenizer::TokenText(int32_t id) const { return pipeline_->TokenText(id); }

bool Tokenizer::IsSpecial(int32_t id) const { return pipeline_->IsSpecial(id); }

std::span<const int32_t> Tokenizer::special_ids() const { return pipeline_->special_ids(); }

int64_t Tokenizer::vocabulary_size() const { return pipeline_->vocabulary_size(); }

StreamingDecoder::StreamingDecoder(const Tokenizer& tokenizer, DecodeOptions options)
    : pipeline_(tokenizer.pipeline()), options_(options), stream_(pipeline_.BeginDecoding()) {}

StreamingDecoder::~StreamingDecoder() = default;

StreamingDecoder::StreamingDecoder(StreamingDecoder&&) noexcept = default;

std::string StreamingDecoder::Next(int32_t id) {
  std::string text;
  const std::optional<std::string_view> token = pipeline_.DecodedToken(id, options_);
  if (token.has_value()) stream_->Next(*token, text);
  return text;
}

std::string StreamingDecoder::Finish() {
  std::string text;
  stream_->Finish(text);
  stream_ = pipeline_.BeginDecoding();
  return text;
}

}  // namespace gantry
