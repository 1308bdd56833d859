#include "trainer/booster/text_generator.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "gemini/parameter_store.h"
#include "trainer/booster/stop_text.h"
#include "trainer/booster/text_codec.h"
#include "trainer/booster/token_sampler.h"
#include "trainer/models/decoder.h"
#include "trainer/models/decoder_generator.h"

namespace gantry {
namespace {

absl::Status CheckRequest(const DecoderModel& model, const TextRequest& request) {
  if (request.prompts.empty()) return InvalidArgument("there is no prompt");
  if (request.tokens < 1) return InvalidArgument("a text of ", request.tokens, " tokens");
  GANTRY_RETURN_IF_ERROR(ValidateSampling(request.sampling));
  for (const std::string& stop : request.stop_texts) {
    if (stop.empty()) return InvalidArgument("a stop text is empty");
  }
  for (const std::vector<int32_t>& prompt : request.prompts) {
    if (prompt.empty()) return InvalidArgument("the prompt is empty: give at least one token");
    if (request.tokens <= model.config().max_sequence - std::ssize(prompt)) continue;
    return InvalidArgument("a prompt of ", prompt.size(), " tokens and ", request.tokens,
                           " more are longer than the model's max_sequence, ",
                           model.config().max_sequence);
  }
  return absl::OkStatus();
}

// One prompt and what has become of it.
struct Text {
  size_t prompt;
  std::vector<int32_t> next;  // tokens that the model has not seen
  SeenTokens seen;
  SamplingOptions sampling;
  int64_t position;  // of the next token
  std::unique_ptr<TextDecoder> decoder;
  StopText stop;
  GeneratedText result;
  bool done = false;
};

class TextRun {
 public:
  TextRun(const DecoderModel& model, const TextCodec& codec, const TextRequest& request,
          TextSink sink)
      : request_(request),
        sink_(sink),
        vocabulary_(static_cast<size_t>(model.config().vocabulary)) {
    for (size_t i = 0; i < request.prompts.size(); ++i) {
      SamplingOptions sampling = request.sampling;
      sampling.seed += i;
      texts_.push_back({.prompt = i,
                        .next = request.prompts[i],
                        .seen = SeenTokens(request.prompts[i]),
                        .sampling = sampling,
                        .position = std::ssize(request.prompts[i]),
                        .decoder = codec.NewDecoder(),
                        .stop = StopText(request.stop_texts),
                        .result = {}});
    }
  }

  // Until all are done, or a stop was requested.
  absl::Status Run(DecoderGenerator& generator) {
    for (int64_t i = 0; i < request_.tokens; ++i) {
      GANTRY_RETURN_IF_ERROR(RunModel(generator));
      for (size_t row = 0; row < rows_.size(); ++row) {
        const std::span<float> logits = std::span(logits_).subspan(row * vocabulary_, vocabulary_);
        GANTRY_RETURN_IF_ERROR(Take(*rows_[row], logits));
      }
      if (std::ranges::all_of(texts_, &Text::done)) return absl::OkStatus();
      if (request_.stop != nullptr && request_.stop->requested()) {
        EndAll(TextEnd::kStopped);
        return absl::OkStatus();
      }
    }
    EndAll(TextEnd::kLength);
    return absl::OkStatus();
  }

  // The leases and allocations of all prompts and of one token each.
  absl::Status DryRun(DecoderGenerator& generator) {
    GANTRY_RETURN_IF_ERROR(RunModel(generator));
    for (Text& text : texts_) text.next.assign(1, 0);
    return RunModel(generator);
  }

  std::vector<GeneratedText> TakeResults() {
    std::vector<GeneratedText> results;
    for (Text& text : texts_) results.push_back(std::move(text.result));
    return results;
  }

 private:
  absl::Status RunModel(DecoderGenerator& generator) {
    rows_.clear();
    appended_.clear();
    for (Text& text : texts_) {
      if (text.done) continue;
      rows_.push_back(&text);
      appended_.push_back({.sequence = static_cast<int64_t>(text.prompt), .tokens = text.next});
    }
    logits_.resize(rows_.size() * vocabulary_);
    return generator.Append(appended_, logits_);
  }

  absl::Status Take(Text& text, std::span<float> logits) {
    text.seen.Penalize(logits, text.sampling.repetition_penalty);
    GANTRY_ASSIGN_OR_RETURN(const int32_t token, SampleToken(logits, text.sampling, text.position));
    text.next.assign(1, token);
    text.seen.Add(token);
    ++text.position;
    ++text.result.tokens;
    if (std::ranges::find(request_.end_tokens, token) != request_.end_tokens.end()) {
      End(text, TextEnd::kEndToken);
      return absl::OkStatus();
    }
    HandOut(text, text.stop.Push(text.decoder->Next(token)));
    if (text.stop.found()) End(text, TextEnd::kStopText);
    return absl::OkStatus();
  }

  void HandOut(Text& text, std::string_view piece) {
    if (piece.empty()) return;
    text.result.text += piece;
    sink_(text.prompt, piece);
  }

  void End(Text& text, TextEnd end) {
    HandOut(text, text.stop.Push(text.decoder->Finish()));
    // What was held back may hold a stop text now that it is whole.
    text.result.end = text.stop.found() ? TextEnd::kStopText : end;
    HandOut(text, text.stop.Finish());
    text.done = true;
  }
  void EndAll(TextEnd end) {
    for (Text& text : texts_) {
      if (!text.done) End(text, end);
    }
  }

  const TextRequest& request_;
  TextSink sink_;
  size_t vocabulary_;
  std::vector<Text> texts_;
  // Of one pass through the model.
  std::vector<Text*> rows_;
  std::vector<SequenceTokens> appended_;
  std::vector<float> logits_;
};

}  // namespace

std::string_view Name(TextEnd end) {
  switch (end) {
    case TextEnd::kEndToken:
      return "end_token";
    case TextEnd::kStopText:
      return "stop_text";
    case TextEnd::kStopped:
      return "stopped";
    case TextEnd::kLength:
      break;
  }
  return "length";
}

absl::StatusOr<std::vector<GeneratedText>> GenerateTexts(const DecoderModel& model,
                                                         const TextCodec& codec,
                                                         const TextRequest& request,
                                                         TextSink sink) {
  GANTRY_RETURN_IF_ERROR(CheckRequest(model, request));
  size_t longest = 0;
  for (const std::vector<int32_t>& prompt : request.prompts) {
    longest = std::max(longest, prompt.size());
  }
  GANTRY_ASSIGN_OR_RETURN(
      const std::unique_ptr<DecoderGenerator> generator,
      DecoderGenerator::Create(&model,
                               {.sequences = std::ssize(request.prompts),
                                .capacity = static_cast<int64_t>(longest) + request.tokens}));
  TextRun run(model, codec, request, sink);
  const bool dry = model.context().store->dry_run();
  GANTRY_RETURN_IF_ERROR(dry ? run.DryRun(*generator) : run.Run(*generator));
  return run.TakeResults();
}

}  // namespace gantry
