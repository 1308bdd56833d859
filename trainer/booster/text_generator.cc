#include "trainer/booster/text_generator.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "gemini/parameter_store.h"
#include "trainer/booster/token_sampler.h"
#include "trainer/models/decoder.h"
#include "trainer/models/decoder_generator.h"

namespace gantry {
namespace {

std::vector<int32_t> TokensOf(std::string_view text) {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

absl::Status CheckRequest(const DecoderModel& model, const TextRequest& request) {
  if (request.prompt.empty()) return InvalidArgument("the prompt is empty: give at least one byte");
  if (request.tokens < 1) return InvalidArgument("a text of ", request.tokens, " tokens");
  GANTRY_RETURN_IF_ERROR(ValidateSampling(request.sampling));
  const int64_t room = model.config().max_sequence - static_cast<int64_t>(request.prompt.size());
  if (request.tokens <= room) return absl::OkStatus();
  return InvalidArgument("a prompt of ", request.prompt.size(), " bytes and ", request.tokens,
                         " more are longer than the model's max_sequence, ",
                         model.config().max_sequence);
}

// The leases and allocations of a prompt and of one token.
absl::Status DryRun(DecoderGenerator& generator, std::vector<int32_t> tokens,
                    std::vector<float>& logits) {
  GANTRY_RETURN_IF_ERROR(generator.Append(tokens, logits));
  tokens.resize(1);
  return generator.Append(tokens, logits);
}

}  // namespace

absl::StatusOr<std::string> GenerateText(const DecoderModel& model, const TextRequest& request,
                                         absl::FunctionRef<void(char)> on_byte) {
  GANTRY_RETURN_IF_ERROR(CheckRequest(model, request));
  const auto prompt_bytes = static_cast<int64_t>(request.prompt.size());
  GANTRY_ASSIGN_OR_RETURN(
      const std::unique_ptr<DecoderGenerator> generator,
      DecoderGenerator::Create(&model, {.capacity = prompt_bytes + request.tokens}));
  std::vector<float> logits(static_cast<size_t>(model.config().vocabulary));
  std::vector<int32_t> next = TokensOf(request.prompt);
  if (model.context().store->dry_run()) {
    GANTRY_RETURN_IF_ERROR(DryRun(*generator, next, logits));
    return std::string();
  }
  std::string text;
  for (int64_t i = 0; i < request.tokens; ++i) {
    if (request.stop != nullptr && request.stop->requested()) break;
    GANTRY_RETURN_IF_ERROR(generator->Append(next, logits));
    GANTRY_ASSIGN_OR_RETURN(const int32_t token,
                            SampleToken(logits, request.sampling, prompt_bytes + i));
    next.assign(1, token);
    text += static_cast<char>(static_cast<unsigned char>(token));
    on_byte(text.back());
  }
  return text;
}

}  // namespace gantry
