// The base's weight with its adapter in it: what a model without adapters computes the same with.
// Thread-compatible; owns nothing.
#ifndef GANTRY_TRAINER_MODELS_MERGED_WEIGHT_H_
#define GANTRY_TRAINER_MODELS_MERGED_WEIGHT_H_

#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/models/decoder.h"

namespace gantry {

// The values of a parameter of the base, in the type and layout it is registered with, summed in
// float and rounded once: W + s B A, with DoRA its rows at their magnitudes; W where it has no
// adapter. Holds a whole tensor. Between steps, after Seal. Errors: kNotFound for a name that is no
// parameter's of the base; those of ReadState and of the multiplication.
absl::StatusOr<std::vector<std::byte>> MergedWeight(const DecoderModel& model,
                                                    std::string_view name);

}  // namespace gantry

#endif  // GANTRY_TRAINER_MODELS_MERGED_WEIGHT_H_
