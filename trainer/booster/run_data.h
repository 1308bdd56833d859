// The data that a config describes, opened: what a run trains on and what it is evaluated on.
//
//   GANTRY_ASSIGN_OR_RETURN(const auto data, RunData::Open(files, config, tokenizer));
//   ... Trainer::Create({.training = &data->training(), .validation = data->validation(), ...})
//
// Immutable and thread-safe once opened; owns everything it hands out.
#ifndef GANTRY_TRAINER_BOOSTER_RUN_DATA_H_
#define GANTRY_TRAINER_BOOSTER_RUN_DATA_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/tokenizer_codec.h"
#include "trainer/data/byte_corpus.h"
#include "trainer/data/example_encoder.h"
#include "trainer/data/example_token_source.h"
#include "trainer/data/token_source.h"

namespace gantry {

class RunData {
 public:
  // Reads the files and turns them into the tokenizer's tokens; null: bytes are the tokens. Files
  // whose names end in .jsonl hold an example in each line (trainer/data/example.h), others text.
  // `tokenizer` outlives the data. Errors: kInvalidArgument for text that is too short for
  // data.sequence_length, both kinds of files together, examples without a tokenizer; those of
  // reading, of the tokenizer and of OpenExamples.
  static absl::StatusOr<std::unique_ptr<RunData>> Open(FileCalls& files, const RunConfig& config,
                                                       const TokenizerCodec* tokenizer);

  const TokenSource& training() const { return *training_; }
  const TokenSource* validation() const { return validation_.get(); }
  // Of files of examples; nothing of text.
  const std::optional<ExampleSummary>& examples() const { return examples_; }

 private:
  RunData() = default;
  absl::Status OpenBytes(const RunConfig& config);
  absl::Status OpenTokens(const RunConfig& config, const TokenizerCodec& codec);
  absl::Status OpenExampleFiles(FileCalls& files, const RunConfig& config,
                                const TokenizerCodec& codec);

  std::optional<ByteCorpus> corpus_;       // that byte sources read
  std::optional<ExampleEncoder> encoder_;  // that example sources use
  std::optional<ExampleSummary> examples_;
  std::unique_ptr<TokenSource> training_;
  std::unique_ptr<TokenSource> validation_;  // null: none
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_RUN_DATA_H_
