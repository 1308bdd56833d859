// Writes the parameters of a decoder as safetensors files, under the names, shapes and orientation
// that Transformers reads. In pieces: beside one of a few MiB only a strip of a transposed matrix
// is held.
//
// Stateless function; blocks.
#ifndef GANTRY_TRAINER_HUGGING_FACE_WEIGHT_WRITER_H_
#define GANTRY_TRAINER_HUGGING_FACE_WEIGHT_WRITER_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "gemini/parameter_store.h"
#include "trainer/models/decoder_config.h"
#include "trainer/models/families.h"
#include "trainer/safetensors/writer.h"

namespace gantry {

// Fills `values` with elements [first, first + n) of a parameter as it is in memory, as precise as
// it is known.
using ParameterSource = absl::FunctionRef<absl::Status(const DecoderTensor& parameter,
                                                       int64_t first, std::span<float> values)>;

struct WeightWriting {
  FileCalls* files;
  std::string folder;  // exists; holds no model
  const DecoderConfig* config;
  DType dtype;
  Bytes shard_bytes_max = kShardBytesMax;
  Bytes strip_bytes = Bytes(int64_t{32} << 20);  // tests make it small
};

// A tied head is not written. Errors: those of `source` and of WriteSafetensors.
absl::Status WriteWeights(const WeightWriting& writing, ParameterSource source);

// Elements of a store's tensor of that name: its master where it has one. REQUIRES: sealed, between
// steps. Errors: kNotFound; those of ReadState.
absl::Status ReadParameter(ParameterStore& store, const std::string& name, int64_t first,
                           std::span<float> values);

}  // namespace gantry

#endif  // GANTRY_TRAINER_HUGGING_FACE_WEIGHT_WRITER_H_
