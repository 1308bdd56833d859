// Decoders in double, written from their definitions with loops only: the oracle of DecoderModel.
#ifndef GANTRY_TRAINER_MODELS_TESTING_REFERENCE_DECODER_H_
#define GANTRY_TRAINER_MODELS_TESTING_REFERENCE_DECODER_H_

#include <map>
#include <string>
#include <vector>

#include "trainer/models/decoder.h"
#include "trainer/models/decoder_config.h"

namespace gantry {

// Parameters by Hugging Face name, row-major. A tied head has no "lm_head.weight".
using ReferenceParameters = std::map<std::string, std::vector<double>>;

// Logits of all tokens, [sequences * length, vocabulary].
std::vector<double> ReferenceLogits(const ReferenceParameters& parameters,
                                    const DecoderConfig& config, const TokenBatch& batch);
// Sum over targets that are not ignored of -log p(target).
double ReferenceLoss(const ReferenceParameters& parameters, const DecoderConfig& config,
                     const TokenBatch& batch);

}  // namespace gantry

#endif  // GANTRY_TRAINER_MODELS_TESTING_REFERENCE_DECODER_H_
