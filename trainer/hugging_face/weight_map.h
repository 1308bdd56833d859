// Which tensor of a model's files is which parameter. Every parameter must be there, and everything
// that is there must be a parameter, or known to be none: GPT-2's causal masks, rotary frequencies,
// the head of a model whose head is its embedding.
//
// A pure function; thread-safe.
#ifndef GANTRY_TRAINER_HUGGING_FACE_WEIGHT_MAP_H_
#define GANTRY_TRAINER_HUGGING_FACE_WEIGHT_MAP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/models/decoder_config.h"
#include "trainer/models/families.h"
#include "trainer/safetensors/header.h"
#include "trainer/safetensors/reader.h"

namespace gantry {

struct MappedWeight {
  DecoderTensor parameter;
  const StoredTensor* stored;  // the reader's
};

struct WeightMap {
  std::vector<MappedWeight> weights;  // every parameter once, in the order of the files
  // The head of a tied model, which files may hold beside the embedding.
  const StoredTensor* spare_head = nullptr;
  size_t embedding = 0;  // index of the token embedding in `weights`
};

// The shape that files have: [in, out] for what is stored transposed.
std::vector<int64_t> StoredShape(const DecoderTensor& parameter);

// Names may lack the family's prefix ("model.", "transformer."), all or none of them. Errors:
// kInvalidArgument listing names that are missing or unexpected, or naming a tensor of another
// shape or of a type that cannot be loaded. REQUIRES: a valid config. The result points into
// `reader`.
absl::StatusOr<WeightMap> MapWeights(const SafetensorsReader& reader, const DecoderConfig& config);

}  // namespace gantry

#endif  // GANTRY_TRAINER_HUGGING_FACE_WEIGHT_MAP_H_
