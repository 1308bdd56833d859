#include "trainer/cli/preview_report.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>

#include "base/strings.h"
#include "trainer/data/example_encoder.h"
#include "trainer/data/example_token_source.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kScored[] = "\x1b[30;42m";  // black on green
constexpr char kPlain[] = "\x1b[0m";

// The text that a token stands for by itself: a part of a character is U+FFFD.
std::string TextOf(const Preview& preview, size_t i) {
  return preview.tokenizer->Decode(std::span(preview.encoded.tokens).subspan(i, 1),
                                   {.skip_special_tokens = false});
}

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Share(int64_t part, int64_t whole) {
  char text[32];
  const double share =
      whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  std::snprintf(text, sizeof(text), "%.1f %%", share);
  return text;
}

std::string ColouredTokens(const Preview& preview) {
  const EncodedExample& encoded = preview.encoded;
  std::string out;
  // Runs, so that characters of several tokens stay whole.
  for (size_t begin = 0; begin < encoded.tokens.size();) {
    size_t end = begin;
    while (end < encoded.tokens.size() && encoded.scored[end] == encoded.scored[begin]) ++end;
    const std::string text = preview.tokenizer->Decode(
        std::span(encoded.tokens).subspan(begin, end - begin), {.skip_special_tokens = false});
    out += encoded.scored[begin] != 0 ? StrCat(kScored, text, kPlain) : text;
    begin = end;
  }
  return out + "\n";
}

std::string MarkedTokens(const Preview& preview) {
  const EncodedExample& encoded = preview.encoded;
  std::string out;
  for (size_t i = 0; i < encoded.tokens.size(); ++i) {
    char number[48];
    std::snprintf(number, sizeof(number), "%6zu %8d  ", i, encoded.tokens[i]);
    out +=
        StrCat(number, Quoted(TextOf(preview, i)), encoded.scored[i] != 0 ? "  scored" : "", "\n");
  }
  return out;
}

}  // namespace

std::string PreviewText(const Preview& preview, MaskStyle style) {
  const ExampleSummary& summary = preview.summary;
  const auto tokens = static_cast<int64_t>(preview.encoded.tokens.size());
  std::string out =
      StrCat("example in line ", preview.example, ": ", tokens, " tokens, ",
             preview.encoded.scored_tokens(), " of them scored\n\n",
             style == MaskStyle::kColour ? ColouredTokens(preview) : MarkedTokens(preview));
  const int64_t positions = preview.sequences * preview.sequence_length;
  out += StrCat("\n", summary.lines, " examples, ", summary.skipped, " skipped, ",
                summary.truncated, " cut to ", preview.sequence_length + 1, " tokens\n",
                summary.tokens, " tokens, ", summary.scored_tokens, " scored, ",
                Share(summary.tokens - summary.scored_tokens, summary.tokens), " masked out\n",
                preview.examples, " examples in ", preview.sequences, " sequences of ",
                preview.sequence_length, ", ", Share(preview.padding_positions, positions),
                " padding\n");
  for (const std::string& reason : summary.skipped_reasons) out += StrCat("skipped ", reason, "\n");
  return out;
}

std::string PreviewJson(const Preview& preview) {
  Json tokens = Json::array();
  for (size_t i = 0; i < preview.encoded.tokens.size(); ++i) {
    tokens.push_back({{"id", preview.encoded.tokens[i]},
                      {"text", TextOf(preview, i)},
                      {"scored", preview.encoded.scored[i] != 0}});
  }
  const ExampleSummary& summary = preview.summary;
  const Json json = {{"command", "preview"},
                     {"line", preview.example},
                     {"text", preview.encoded.text},
                     {"tokens", std::move(tokens)},
                     {"scored_tokens", preview.encoded.scored_tokens()},
                     {"data",
                      {{"examples", summary.lines},
                       {"skipped", summary.skipped},
                       {"skipped_reasons", summary.skipped_reasons},
                       {"truncated", summary.truncated},
                       {"tokens", summary.tokens},
                       {"scored_tokens", summary.scored_tokens},
                       {"examples_used", preview.examples},
                       {"sequences", preview.sequences},
                       {"sequence_length", preview.sequence_length},
                       {"padding_positions", preview.padding_positions}}}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gantry
