#include "trainer/booster/run_data.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/tokenizer_codec.h"
#include "trainer/chat_template/civil_time.h"
#include "trainer/data/batch_sampler.h"
#include "trainer/data/byte_corpus.h"
#include "trainer/data/byte_token_source.h"
#include "trainer/data/example_encoder.h"
#include "trainer/data/example_token_source.h"
#include "trainer/data/token_source.h"
#include "trainer/data/token_text_source.h"
#include "trainer/tokenizer/tokenizer_config.h"

namespace gantry {
namespace {

bool IsExampleFile(const std::string& path) { return path.ends_with(".jsonl"); }

absl::StatusOr<std::unique_ptr<TokenSource>> ByteSource(std::span<const uint8_t> text,
                                                        const ByteCorpus& corpus,
                                                        const DataConfig& config) {
  GANTRY_ASSIGN_OR_RETURN(
      const BatchSampler sampler,
      BatchSampler::Create(text, {.seed = config.seed, .sequence_length = config.sequence_length}));
  return std::make_unique<ByteTokenSource>(sampler, corpus.fingerprint());
}

absl::StatusOr<std::unique_ptr<TokenSource>> TextSource(std::span<const uint8_t> text,
                                                        const ByteCorpus& corpus,
                                                        const DataConfig& config,
                                                        const TokenizerCodec& codec) {
  GANTRY_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                          codec.Encode({reinterpret_cast<const char*>(text.data()), text.size()}));
  GANTRY_ASSIGN_OR_RETURN(
      TokenTextSource source,
      TokenTextSource::Create(std::move(tokens), {.sequence_length = config.sequence_length,
                                                  .seed = config.seed,
                                                  .fingerprint = StrCat(corpus.fingerprint(), ":",
                                                                        codec.fingerprint())}));
  return std::make_unique<TokenTextSource>(std::move(source));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunData>> RunData::Open(FileCalls& files, const RunConfig& config,
                                                       const TokenizerCodec* tokenizer) {
  auto data = std::unique_ptr<RunData>(new RunData());
  const auto examples = std::ranges::count_if(config.data.files, IsExampleFile);
  if (examples > 0) {
    if (examples != std::ssize(config.data.files)) {
      return InvalidArgument("data.files: files of examples (.jsonl) and of text cannot be mixed");
    }
    if (tokenizer == nullptr) {
      return InvalidArgument(
          "data.files: examples (.jsonl) need a model with a tokenizer: set model.path");
    }
    GANTRY_RETURN_IF_ERROR(data->OpenExampleFiles(files, config, *tokenizer));
    return data;
  }
  const bool bytes = tokenizer == nullptr;
  // A token is a byte or more.
  GANTRY_ASSIGN_OR_RETURN(
      data->corpus_,
      ByteCorpus::Load(files, {.files = config.data.files,
                               .sequence_length = bytes ? config.data.sequence_length : 1,
                               .validation_fraction = config.data.validation_fraction}));
  GANTRY_RETURN_IF_ERROR(bytes ? data->OpenBytes(config) : data->OpenTokens(config, *tokenizer));
  return data;
}

absl::Status RunData::OpenExampleFiles(FileCalls& files, const RunConfig& config,
                                       const TokenizerCodec& codec) {
  const TokenizerConfig& special = codec.config();
  GANTRY_ASSIGN_OR_RETURN(const CivilTime date, ParseDate(config.data.date));
  GANTRY_ASSIGN_OR_RETURN(encoder_,
                          ExampleEncoder::Create({.tokenizer = &codec.tokenizer(),
                                                  .chat_template = codec.chat_template(),
                                                  .bos_token = special.bos_token.value_or(""),
                                                  .eos_token = special.eos_token.value_or(""),
                                                  .now = date,
                                                  .scored_turns = config.data.scored_turns}));
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<ThreadTeam> team,
                          ThreadTeam::Create({.threads = ThreadsOf(config.train)}));
  const std::string padding = special.pad_token.value_or(special.eos_token.value_or(""));
  GANTRY_ASSIGN_OR_RETURN(
      ExampleSet set,
      OpenExamples(files, *team,
                   {.files = config.data.files,
                    .encoder = &*encoder_,
                    .source = {.sequence_length = config.data.sequence_length,
                               .padding_token = codec.tokenizer().TokenId(padding).value_or(0),
                               .seed = config.data.seed,
                               .packing = config.data.packing},
                    .validation_fraction = config.data.validation_fraction,
                    .skip_bad_lines = config.data.skip_bad_lines}));
  training_ = std::move(set.training);
  validation_ = std::move(set.validation);
  examples_ = std::move(set.summary);
  return absl::OkStatus();
}

absl::Status RunData::OpenBytes(const RunConfig& config) {
  GANTRY_ASSIGN_OR_RETURN(training_, ByteSource(corpus_->training(), *corpus_, config.data));
  if (corpus_->validation().empty()) return absl::OkStatus();
  GANTRY_ASSIGN_OR_RETURN(validation_, ByteSource(corpus_->validation(), *corpus_, config.data));
  return absl::OkStatus();
}

absl::Status RunData::OpenTokens(const RunConfig& config, const TokenizerCodec& codec) {
  GANTRY_ASSIGN_OR_RETURN(training_, TextSource(corpus_->training(), *corpus_, config.data, codec));
  if (!corpus_->validation().empty()) {
    GANTRY_ASSIGN_OR_RETURN(validation_,
                            TextSource(corpus_->validation(), *corpus_, config.data, codec));
  }
  corpus_.reset();  // the tokens are all that is needed
  return absl::OkStatus();
}

}  // namespace gantry
