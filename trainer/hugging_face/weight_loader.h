// Fills a store with the weights of a model's files: in pieces, in the order of the files, with the
// next ones read ahead. There is never a second copy of the model; beside one piece of a few MiB
// only a strip of a transposed matrix is held.
//
// Stateless function; blocks. One thread at a time may use a store.
#ifndef GANTRY_TRAINER_HUGGING_FACE_WEIGHT_LOADER_H_
#define GANTRY_TRAINER_HUGGING_FACE_WEIGHT_LOADER_H_

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/log.h"
#include "gemini/parameter_store.h"
#include "trainer/models/decoder_config.h"
#include "trainer/safetensors/reader.h"

namespace gantry {

inline constexpr Bytes kWeightPieceBytes = 4_MiB;
inline constexpr Bytes kWeightStripBytes = 16_MiB;

struct WeightLoading {
  const SafetensorsReader* reader;
  const DecoderConfig* config;  // the one that the store's parameters were registered by
  ParameterStore* store;        // sealed, between steps
  Logger* logger;
  // Tests make it small.
  Bytes strip_bytes = kWeightStripBytes;
};

// Values are converted to the parameter's type; masters get them as precise as the file has them.
// Optimizer moments are left alone. A tied model's head in the files is compared with the embedding
// and, where it differs, passed over with a warning, as config.json says that there is none.
// Errors: those of MapWeights, reading and WriteState; after one the store holds no model.
absl::Status LoadWeights(const WeightLoading& loading);

}  // namespace gantry

#endif  // GANTRY_TRAINER_HUGGING_FACE_WEIGHT_LOADER_H_
