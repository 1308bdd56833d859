// Continues a text with a trained model of bytes.
// Thread-compatible; owns nothing.
#ifndef GANTRY_TRAINER_BOOSTER_TEXT_GENERATOR_H_
#define GANTRY_TRAINER_BOOSTER_TEXT_GENERATOR_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/booster/stop_source.h"
#include "trainer/booster/token_sampler.h"
#include "trainer/models/decoder.h"

namespace gantry {

struct TextRequest {
  std::string_view prompt;  // at least one byte
  int64_t tokens;           // to add, at least one
  SamplingOptions sampling;
  const StopSource* stop = nullptr;  // ends the text early; null: never
};

// Returns the bytes behind the prompt, and passes each to `on_byte` as it comes. Between steps.
// Before Seal it is a dry run over the same leases and allocations, whose text is empty. Errors:
// kInvalidArgument for a prompt that is empty or longer, together with the text, than the model's
// max_sequence; those of the model and of SampleToken.
absl::StatusOr<std::string> GenerateText(const DecoderModel& model, const TextRequest& request,
                                         absl::FunctionRef<void(char)> on_byte);

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_TEXT_GENERATOR_H_
