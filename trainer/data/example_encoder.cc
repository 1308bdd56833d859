#include "trainer/data/example_encoder.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/chat_template.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_comparison.h"
#include "trainer/data/example.h"
#include "trainer/tokenizer/encoding.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gantry {
namespace {

bool IsAssistant(const Value& message) {
  const Value* role = FindText(message.entries(), "role");
  return role != nullptr && role->Is(Value::Kind::kString) && role->string() == "assistant";
}

absl::StatusOr<std::optional<int32_t>> TokenOf(const Tokenizer& tokenizer, std::string_view what,
                                               const std::string& text) {
  if (text.empty()) return std::optional<int32_t>();
  const std::optional<int32_t> id = tokenizer.TokenId(text);
  if (!id.has_value()) {
    return InvalidArgument("the tokenizer has no token '", text, "', the model's ", what);
  }
  return id;
}

// Marks the tokens that begin in one of the spans, which are in order and do not overlap. A token
// begins where those before it end: some tokenizers leave the spaces of a token out of its range,
// up to all of it.
std::vector<uint8_t> ScoredIn(const std::vector<TextRange>& offsets,
                              const std::vector<ByteSpan>& spans) {
  std::vector<uint8_t> scored(offsets.size(), 0);
  int64_t end_before = offsets.empty() ? 0 : offsets[0].end;
  for (size_t i = 1; i < offsets.size(); ++i) {
    const auto begin = static_cast<size_t>(std::min(offsets[i].begin, end_before));
    end_before = std::max(end_before, offsets[i].end);
    if (offsets[i].end == 0) continue;  // what the tokenizer added
    const auto behind =
        std::upper_bound(spans.begin(), spans.end(), begin,
                         [](size_t at, const ByteSpan& span) { return at < span.begin; });
    if (behind == spans.begin()) continue;
    scored[i] = begin < (behind - 1)->end ? 1 : 0;
  }
  return scored;
}

absl::Status CheckScored(const EncodedExample& example) {
  if (example.tokens.size() < 2) {
    return InvalidArgument("it has ", example.tokens.size(),
                           " tokens; at least 2 are needed, one to predict the other");
  }
  if (example.scored_tokens() == 0) return InvalidArgument("none of its tokens is scored");
  return absl::OkStatus();
}

}  // namespace

int64_t EncodedExample::scored_tokens() const {
  return std::accumulate(scored.begin(), scored.end(), int64_t{0});
}

bool EncodedExample::Truncate(int64_t tokens_max) {
  const auto size = static_cast<size_t>(tokens_max);
  if (tokens.size() <= size) return false;
  tokens.resize(size);
  scored.resize(size);
  offsets.resize(size);
  return true;
}

absl::StatusOr<ExampleEncoder> ExampleEncoder::Create(const Options& options) {
  ExampleEncoder encoder(options);
  GANTRY_ASSIGN_OR_RETURN(encoder.bos_,
                          TokenOf(*options.tokenizer, "bos_token", options.bos_token));
  GANTRY_ASSIGN_OR_RETURN(encoder.eos_,
                          TokenOf(*options.tokenizer, "eos_token", options.eos_token));
  return encoder;
}

absl::StatusOr<EncodedExample> ExampleEncoder::Encode(const Example& example) const {
  switch (example.kind) {
    case Example::Kind::kMessages:
      return EncodeMessages(example);
    case Example::Kind::kPromptCompletion:
      return EncodeText(example.prompt + example.completion, example.prompt.size());
    case Example::Kind::kText:
      return EncodeText(example.text, 0);
  }
  return InvalidArgument("an example of no kind");
}

absl::StatusOr<EncodedExample> ExampleEncoder::EncodeText(std::string_view text,
                                                          size_t scored_from) const {
  GANTRY_ASSIGN_OR_RETURN(
      Encoding encoding,
      options_.tokenizer->Encode(text, {.add_special_tokens = true, .want_offsets = true}));
  // A text that begins with BOS itself: the tokenizer has added another.
  if (bos_.has_value() && encoding.ids.size() > 1 && encoding.ids[0] == *bos_ &&
      encoding.ids[1] == *bos_) {
    encoding.ids.erase(encoding.ids.begin());
    encoding.offsets.erase(encoding.offsets.begin());
  }
  EncodedExample encoded{.text = std::string(text),
                         .tokens = std::move(encoding.ids),
                         .scored = {},
                         .offsets = std::move(encoding.offsets)};
  encoded.scored = ScoredIn(encoded.offsets, {{.begin = scored_from, .end = text.size()}});
  if (eos_.has_value()) {
    if (encoded.tokens.empty() || encoded.tokens.back() != *eos_) {
      encoded.tokens.push_back(*eos_);
      encoded.scored.push_back(1);
      encoded.offsets.push_back({});
    }
    // Also where the tokenizer has added it.
    if (encoded.tokens.size() > 1) encoded.scored.back() = 1;
  }
  GANTRY_RETURN_IF_ERROR(CheckScored(encoded));
  return encoded;
}

absl::StatusOr<RenderedChat> ExampleEncoder::Render(const Example& example, size_t messages,
                                                    bool add_generation_prompt) const {
  const std::vector<Value>& all = example.messages.items();
  ChatInput input;
  input.messages = messages == all.size()
                       ? example.messages
                       : Value::List(std::vector<Value>(
                             all.begin(), all.begin() + static_cast<std::ptrdiff_t>(messages)));
  input.tools = example.tools;
  input.add_generation_prompt = add_generation_prompt;
  input.now = options_.now;
  // A token that the model does not have is not defined.
  if (!options_.bos_token.empty()) {
    input.variables.emplace_back(Value::String("bos_token"), Value::String(options_.bos_token));
  }
  if (!options_.eos_token.empty()) {
    input.variables.emplace_back(Value::String("eos_token"), Value::String(options_.eos_token));
  }
  input.variables.insert(input.variables.end(), example.variables.begin(), example.variables.end());
  return options_.chat_template->Render(input);
}

size_t ExampleEncoder::TurnEnd(std::string_view text, ByteSpan turn) const {
  if (options_.eos_token.empty()) return turn.end;
  const std::string_view written = text.substr(turn.begin, turn.end - turn.begin);
  const size_t last = written.find_last_not_of(" \n\r\t");
  if (last == std::string_view::npos) return turn.end;
  return written.substr(0, last + 1).ends_with(options_.eos_token) ? turn.begin + last + 1
                                                                   : turn.end;
}

absl::StatusOr<std::vector<ByteSpan>> ExampleEncoder::TurnSpans(const Example& example,
                                                                const std::string& text) const {
  const std::vector<Value>& messages = example.messages.items();
  size_t first = 0;
  if (options_.scored_turns == ScoredTurns::kLast) {
    first = messages.size();
    while (first > 0 && !IsAssistant(messages[first - 1])) --first;
    if (first > 0) --first;
  }
  std::vector<ByteSpan> spans;
  for (size_t i = first; i < messages.size(); ++i) {
    if (!IsAssistant(messages[i])) continue;
    GANTRY_ASSIGN_OR_RETURN(const RenderedChat before, Render(example, i, true));
    GANTRY_ASSIGN_OR_RETURN(const RenderedChat until, Render(example, i + 1, false));
    if (!text.starts_with(before.text) || !text.starts_with(until.text) ||
        until.text.size() < before.text.size()) {
      return InvalidArgument(
          "the chat template writes messages[", i,
          "] in another way once others follow, or its generation prompt is not how the turn "
          "begins: use a template that marks its turns with {% generation %}, or score the last "
          "turn only");
    }
    const ByteSpan turn{.begin = before.text.size(), .end = until.text.size()};
    spans.push_back({.begin = turn.begin, .end = TurnEnd(text, turn)});
  }
  return spans;
}

absl::StatusOr<EncodedExample> ExampleEncoder::EncodeMessages(const Example& example) const {
  if (options_.chat_template == nullptr) {
    return InvalidArgument("a conversation, but the model has no chat template");
  }
  const std::vector<Value>& messages = example.messages.items();
  if (std::none_of(messages.begin(), messages.end(), IsAssistant)) {
    return InvalidArgument("the conversation has no assistant turn, so nothing is scored");
  }
  GANTRY_ASSIGN_OR_RETURN(RenderedChat chat, Render(example, messages.size(), false));
  std::vector<ByteSpan> spans = std::move(chat.generations);
  if (!options_.chat_template->has_generation()) {
    GANTRY_ASSIGN_OR_RETURN(spans, TurnSpans(example, chat.text));
  } else if (!chat.generation_places_known) {
    return InvalidArgument(
        "the chat template has {% generation %} within a macro, a set or a filter block, where "
        "its place in the text is not known");
  } else if (options_.scored_turns == ScoredTurns::kLast && spans.size() > 1) {
    spans.erase(spans.begin(), spans.end() - 1);
  }
  GANTRY_ASSIGN_OR_RETURN(
      Encoding encoding,
      options_.tokenizer->Encode(chat.text, {.add_special_tokens = false, .want_offsets = true}));
  EncodedExample encoded{.text = std::move(chat.text),
                         .tokens = std::move(encoding.ids),
                         .scored = {},
                         .offsets = std::move(encoding.offsets)};
  encoded.scored = ScoredIn(encoded.offsets, spans);
  GANTRY_RETURN_IF_ERROR(CheckScored(encoded));
  return encoded;
}

}  // namespace gantry
