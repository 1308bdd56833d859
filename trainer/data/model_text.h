// What a model's folder says about text: its tokenizer, its special tokens and its chat template,
// ready to encode examples.
//
//   GANTRY_ASSIGN_OR_RETURN(const auto text, ModelText::Load(files, {.folder = "model"}));
//   ... OpenExamples(files, *team, {.encoder = &text->encoder(), ...});
#ifndef GANTRY_TRAINER_DATA_MODEL_TEXT_H_
#define GANTRY_TRAINER_DATA_MODEL_TEXT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "trainer/chat_template/chat_template.h"
#include "trainer/chat_template/civil_time.h"
#include "trainer/data/example_encoder.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gantry {

// Immutable and thread-safe.
class ModelText {
 public:
  struct Options {
    std::string folder;
    std::string chat_template_file = {};  // instead of the folder's own; empty: none
    // What templates see as the present. A run that resumes must see the same.
    CivilTime now = {};
    ScoredTurns scored_turns = ScoredTurns::kAll;
  };
  // Errors: those of Tokenizer::Load, LoadTokenizerConfig, ChatTemplate::Compile and
  // ExampleEncoder::Create, with the file's path.
  static absl::StatusOr<std::unique_ptr<ModelText>> Load(FileCalls& files, const Options& options);
  ModelText(const ModelText&) = delete;
  ModelText& operator=(const ModelText&) = delete;

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const ExampleEncoder& encoder() const { return *encoder_; }
  bool has_chat_template() const { return chat_template_.has_value(); }
  // The model's padding token, or its EOS, or token 0: it is never scored.
  int32_t padding_token() const { return padding_token_; }

 private:
  ModelText() = default;

  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  std::optional<ExampleEncoder> encoder_;
  int32_t padding_token_ = 0;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_DATA_MODEL_TEXT_H_
