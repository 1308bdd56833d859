// Continues texts with a model.
// Stateless functions; they own nothing.
#ifndef GANTRY_TRAINER_BOOSTER_TEXT_GENERATOR_H_
#define GANTRY_TRAINER_BOOSTER_TEXT_GENERATOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/booster/stop_source.h"
#include "trainer/booster/text_codec.h"
#include "trainer/booster/token_sampler.h"
#include "trainer/models/decoder.h"

namespace gantry {

struct TextRequest {
  // Each at least one token. They go through the model together.
  std::vector<std::vector<int32_t>> prompts;
  int64_t tokens;                            // to add to each at most, at least one
  SamplingOptions sampling;                  // prompt i has its seed plus i
  std::vector<int32_t> end_tokens = {};      // end a text; not part of it
  std::vector<std::string> stop_texts = {};  // likewise; none is empty
  const StopSource* stop = nullptr;          // ends all early; null: never
};

enum class TextEnd : uint8_t { kLength, kEndToken, kStopText, kStopped };
std::string_view Name(TextEnd end);  // "length", "end_token", "stop_text", "stopped"

struct GeneratedText {
  std::string text;
  int64_t tokens = 0;  // generated, the end token included
  TextEnd end = TextEnd::kLength;
};

// Called with the number of a prompt and what to append to its text: whole characters, and nothing
// of a stop text.
using TextSink = absl::FunctionRef<void(size_t prompt, std::string_view piece)>;

// Returns the texts behind the prompts, and passes each on as it comes. Between steps. Before Seal
// it is a dry run over the same leases and allocations, whose texts are empty. Errors:
// kInvalidArgument for no prompts, one that is empty or longer, together with the text, than the
// model's max_sequence, an empty stop text; those of the model and of SampleToken.
absl::StatusOr<std::vector<GeneratedText>> GenerateTexts(const DecoderModel& model,
                                                         const TextCodec& codec,
                                                         const TextRequest& request, TextSink sink);

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_TEXT_GENERATOR_H_
