#include "trainer/tokenizer/tokenizer_pipeline.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/tokenizer/utf8.h"

namespace gantry {
namespace {

constexpr size_t kTextBytesMax = size_t{1} << 30;
// Working memory that has grown for a longer text is not kept.
constexpr size_t kKeptTextBytesMax = size_t{4} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<TokenizerPipeline>> TokenizerPipeline::Parse(std::string_view json) {
  GANTRY_ASSIGN_OR_RETURN(const JsonDocument document, ParseTokenizerJson(json));
  const JsonView root(document.root().value(), "");
  GANTRY_RETURN_IF_ERROR(root.ExpectObject());
  std::unique_ptr<TokenizerPipeline> pipeline(new TokenizerPipeline());
  GANTRY_RETURN_IF_ERROR(pipeline->ParseSteps(root));
  GANTRY_RETURN_IF_ERROR(pipeline->ParseModel(root));
  if (const auto added = root.Find("added_tokens"); added.has_value()) {
    GANTRY_RETURN_IF_ERROR(pipeline->AddTokens(*added));
  }
  if (const auto processor = root.Find("post_processor"); processor.has_value()) {
    GANTRY_ASSIGN_OR_RETURN(pipeline->post_processor_,
                            ParsePostProcessor(*processor, pipeline->vocabulary_size()));
  }
  return pipeline;
}

absl::Status TokenizerPipeline::ParseSteps(const JsonView& json) {
  if (const auto normalizer = json.Find("normalizer"); normalizer.has_value()) {
    GANTRY_ASSIGN_OR_RETURN(normalizer_, ParseNormalizer(*normalizer));
  }
  if (const auto pre_tokenizer = json.Find("pre_tokenizer"); pre_tokenizer.has_value()) {
    GANTRY_ASSIGN_OR_RETURN(pre_tokenizer_, ParsePreTokenizer(*pre_tokenizer));
  }
  if (const auto decoder = json.Find("decoder"); decoder.has_value()) {
    GANTRY_ASSIGN_OR_RETURN(decoder_, ParseDecoder(*decoder));
  } else {
    decoder_ = SpacingDecoder();
  }
  return absl::OkStatus();
}

absl::Status TokenizerPipeline::ParseModel(const JsonView& json) {
  GANTRY_ASSIGN_OR_RETURN(const JsonView model, json.Member("model"));
  GANTRY_RETURN_IF_ERROR(model.ExpectObject());
  // Old files have no type; a list of merges tells.
  GANTRY_ASSIGN_OR_RETURN(const std::string type,
                          model.TextOr("type", model.Find("merges").has_value() ? "BPE" : "none"));
  if (type != "BPE") {
    return model.Error(StrCat("the model '", type, "' is not supported; BPE is"));
  }
  GANTRY_ASSIGN_OR_RETURN(model_, BpeModel::Parse(model, pre_tokenizer_.is_byte_level
                                                             ? BpeModel::Alphabet::kBytes
                                                             : BpeModel::Alphabet::kCharacters));
  tokens_.resize(static_cast<size_t>(model_->vocabulary().id_max()) + 1);
  for (const auto& [text, id] : model_->vocabulary().ids()) {
    tokens_[static_cast<size_t>(id)] = {.exists = true, .text = text};
  }
  return absl::OkStatus();
}

absl::Status TokenizerPipeline::AddTokens(const JsonView& json) {
  GANTRY_ASSIGN_OR_RETURN(const std::vector<AddedToken> tokens, ParseAddedTokens(json));
  for (size_t i = 0; i < tokens.size(); ++i) {
    GANTRY_RETURN_IF_ERROR(AddToken(json.At(i), tokens[i]));
  }
  // Of equal normalized forms special tokens come first.
  std::set<std::string_view> specials;
  for (const bool is_special : {true, false}) {
    for (const AddedToken& token : tokens) {
      if (token.special != is_special) continue;
      if (is_special) specials.insert(token.content);
      if (token.normalized) {
        normalized_matcher_.Add(added_texts_.at(token.id), token);
      } else {
        raw_matcher_.Add(token.content, token);
      }
    }
  }
  for (const AddedToken& token : tokens) {
    Token& entry = tokens_[static_cast<size_t>(token.id)];
    entry.is_special = specials.count(entry.text) > 0;
    if (entry.is_special) special_ids_.push_back(token.id);
  }
  std::sort(special_ids_.begin(), special_ids_.end());
  return absl::OkStatus();
}

absl::Status TokenizerPipeline::AddToken(const JsonView& entry, const AddedToken& token) {
  // The reference numbers added tokens itself, whatever the file says.
  const auto count = static_cast<int32_t>(model_->vocabulary().size());
  const int32_t expected = model_->vocabulary()
                               .Find(token.content)
                               .value_or(added_id_max_ >= count ? added_id_max_ + 1 : count);
  if (token.id != expected) {
    return entry.Error(StrCat("its id is ", token.id, ", and it must be ", expected,
                              ": that of its content in the vocabulary, or the next one"));
  }
  if (const auto text = model_->vocabulary().TextOf(token.id);
      text.has_value() && *text != token.content) {
    return entry.Error(StrCat("its id is that of '", *text, "'"));
  }
  added_id_max_ = std::max(added_id_max_, token.id);
  std::string text = token.content;
  if (token.normalized) {
    GANTRY_ASSIGN_OR_RETURN(text, Normalized(token.content));
    if (text.empty()) return entry.Error("nothing is left of its content when it is normalized");
  }
  added_ids_.emplace(token.content, token.id);
  const auto place = added_texts_.emplace(token.id, std::move(text)).first;
  if (static_cast<size_t>(token.id) >= tokens_.size()) {
    tokens_.resize(static_cast<size_t>(token.id) + 1);
  }
  tokens_[static_cast<size_t>(token.id)] = {.exists = true, .text = place->second};
  return absl::OkStatus();
}

absl::StatusOr<std::string> TokenizerPipeline::Normalized(std::string_view text) const {
  if (normalizer_ == nullptr) return std::string(text);
  TextPieces pieces;
  RegexScratch scratch;
  pieces.Reset(text, false);
  GANTRY_RETURN_IF_ERROR(normalizer_->Apply(pieces, scratch));
  return std::string(pieces.text());
}

absl::StatusOr<Encoding> TokenizerPipeline::Encode(std::string_view text,
                                                   EncodeOptions options) const {
  if (text.size() > kTextBytesMax) {
    return InvalidArgument("a text of ", text.size(), " bytes; at most ", kTextBytesMax,
                           " can be encoded at once");
  }
  if (ValidUtf8Size(text) == text.size()) return EncodeValid(text, options);
  const MendedText mended = MendUtf8(text);
  GANTRY_ASSIGN_OR_RETURN(Encoding encoding, EncodeValid(mended.text, options));
  for (TextRange& range : encoding.offsets) {
    range.begin = mended.origins[static_cast<size_t>(range.begin)];
    range.end = mended.origins[static_cast<size_t>(range.end)];
  }
  return encoding;
}

absl::StatusOr<Encoding> TokenizerPipeline::EncodeValid(std::string_view text,
                                                        EncodeOptions options) const {
  Encoding encoding;
  std::unique_ptr<Scratch> scratch = TakeScratch();
  const absl::Status status = Run(text, options, *scratch, encoding);
  if (text.size() <= kKeptTextBytesMax) GiveScratch(std::move(scratch));
  GANTRY_RETURN_IF_ERROR(status);
  return encoding;
}

absl::Status TokenizerPipeline::Run(std::string_view text, EncodeOptions options, Scratch& scratch,
                                    Encoding& encoding) const {
  TextPieces& pieces = scratch.pieces;
  scratch.spaces.clear();
  pieces.Reset(text, options.want_offsets || pre_tokenizer_.needs_origins);
  raw_matcher_.Apply(pieces);
  if (normalizer_ != nullptr) {
    GANTRY_RETURN_IF_ERROR(normalizer_->Apply(pieces, scratch.regex));
  }
  normalized_matcher_.Apply(pieces);
  if (pre_tokenizer_.steps != nullptr) {
    GANTRY_RETURN_IF_ERROR(pre_tokenizer_.steps->Apply(pieces, scratch.regex));
  }
  for (const TextPiece& piece : pieces.pieces()) {
    GANTRY_RETURN_IF_ERROR(AddPiece(piece, options, scratch, encoding));
  }
  if (post_processor_ != nullptr) {
    post_processor_->Apply({text, options, scratch.spaces}, encoding);
  }
  return absl::OkStatus();
}

absl::Status TokenizerPipeline::AddPiece(const TextPiece& piece, EncodeOptions options,
                                         Scratch& scratch, Encoding& encoding) const {
  const TextPieces& pieces = scratch.pieces;
  scratch.symbols.clear();
  if (piece.token != TextPiece::kNoToken) {
    scratch.symbols.push_back({piece.token, piece.end - piece.begin});
  } else {
    GANTRY_RETURN_IF_ERROR(model_->Tokenize(pieces.TextOf(piece), scratch.bpe, scratch.symbols));
  }
  for (const Symbol& symbol : scratch.symbols) encoding.ids.push_back(symbol.id);
  if (!options.want_offsets) return absl::OkStatus();
  const bool trims = post_processor_ != nullptr && post_processor_->TrimsOffsets();
  uint32_t at = piece.begin;
  for (const Symbol& symbol : scratch.symbols) {
    // Characters of an affix that became bytes can reach beyond.
    const uint32_t end = std::min(at + symbol.size, piece.end);
    const Origin origin = pieces.OriginOf(std::min(at, end - 1), end);
    encoding.offsets.push_back({origin.begin, origin.end});
    at = end;
    if (!trims) continue;
    scratch.spaces.push_back(SpacesOf(piece.token == TextPiece::kNoToken
                                          ? tokens_[static_cast<size_t>(symbol.id)].text
                                          : pieces.TextOf(piece)));
  }
  return absl::OkStatus();
}

std::optional<std::string_view> TokenizerPipeline::DecodedToken(int32_t id,
                                                                DecodeOptions options) const {
  if (id < 0 || static_cast<size_t>(id) >= tokens_.size()) return std::nullopt;
  const Token& token = tokens_[static_cast<size_t>(id)];
  if (!token.exists || (token.is_special && options.skip_special_tokens)) return std::nullopt;
  return token.text;
}

std::optional<int32_t> TokenizerPipeline::TokenId(std::string_view text) const {
  if (const auto added = added_ids_.find(std::string(text)); added != added_ids_.end()) {
    return added->second;
  }
  return model_->vocabulary().Find(text);
}

std::string_view TokenizerPipeline::TokenText(int32_t id) const {
  return DecodedToken(id, {.skip_special_tokens = false}).value_or(std::string_view());
}

bool TokenizerPipeline::IsSpecial(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < tokens_.size() &&
         tokens_[static_cast<size_t>(id)].is_special;
}

std::unique_ptr<TokenizerPipeline::Scratch> TokenizerPipeline::TakeScratch() const {
  {
    MutexLock lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Scratch> scratch = std::move(idle_.back());
      idle_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<Scratch>();
}

void TokenizerPipeline::GiveScratch(std::unique_ptr<Scratch> scratch) const {
  MutexLock lock(mutex_);
  idle_.push_back(std::move(scratch));
}

}  // namespace gantry
