#include "trainer/hugging_face/weight_writer.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "chunk/block.h"
#include "chunk/chunk_layout.h"
#include "trainer/hugging_face/element_conversion.h"
#include "trainer/hugging_face/weight_map.h"
#include "trainer/safetensors/stored_dtype.h"

namespace gantry {
namespace {

// Hands out the bytes of the files, which the writer asks for in order.
class FileBytes {
 public:
  FileBytes(const WeightWriting& writing, std::span<const DecoderTensor> parameters,
            ParameterSource source)
      : dtype_(writing.dtype),
        strip_bytes_(writing.strip_bytes.count()),
        parameters_(parameters),
        source_(source) {}

  absl::Status Fill(size_t index, int64_t first_byte, std::span<std::byte> bytes) {
    const int64_t element_bytes = SizeOf(dtype_);
    const int64_t first = first_byte / element_bytes;
    const auto count = static_cast<int64_t>(bytes.size()) / element_bytes;
    const DecoderTensor& parameter = parameters_[index];
    if (parameter.stored_transposed) return FillTransposed(index, first, bytes);
    floats_.resize(static_cast<size_t>(count));
    GANTRY_RETURN_IF_ERROR(source_(parameter, first, floats_));
    FromFloats(floats_, dtype_, bytes);
    return absl::OkStatus();
  }

 private:
  // A strip is some rows of the file, which are columns of the parameter.
  absl::Status FillTransposed(size_t index, int64_t first, std::span<std::byte> bytes) {
    const int64_t row_elements = parameters_[index].shape[0];
    const auto element_bytes = static_cast<size_t>(SizeOf(dtype_));
    for (size_t done = 0; done < bytes.size();) {
      const int64_t element = first + static_cast<int64_t>(done / element_bytes);
      GANTRY_RETURN_IF_ERROR(HoldStrip(index, element / row_elements));
      const int64_t at = element - strip_first_row_ * row_elements;
      const size_t count = std::min((bytes.size() - done) / element_bytes,
                                    static_cast<size_t>(std::ssize(strip_) - at));
      FromFloats(std::span(strip_).subspan(static_cast<size_t>(at), count), dtype_,
                 bytes.subspan(done, count * element_bytes));
      done += count * element_bytes;
    }
    return absl::OkStatus();
  }

  // Makes the strip one that holds this row of the file.
  absl::Status HoldStrip(size_t index, int64_t row) {
    const DecoderTensor& parameter = parameters_[index];
    const int64_t rows = parameter.shape[1];
    const int64_t row_elements = parameter.shape[0];
    const int64_t held = std::ssize(strip_) / row_elements;
    if (strip_of_ == static_cast<int64_t>(index) && row >= strip_first_row_ &&
        row < strip_first_row_ + held) {
      return absl::OkStatus();
    }
    const int64_t most = strip_bytes_ / (row_elements * SizeOf(DType::kF32));
    const int64_t count = std::clamp<int64_t>(most, 1, rows - row);
    strip_of_ = -1;  // until it is filled
    strip_.resize(static_cast<size_t>(count * row_elements));
    strip_first_row_ = row;
    GANTRY_RETURN_IF_ERROR(GatherStrip(parameter));
    strip_of_ = static_cast<int64_t>(index);
    return absl::OkStatus();
  }

  absl::Status GatherStrip(const DecoderTensor& parameter) {
    const int64_t outputs = parameter.shape[0];
    const int64_t inputs = parameter.shape[1];
    const int64_t strip_rows = std::ssize(strip_) / outputs;
    const int64_t rows_at_once =
        std::max<int64_t>(1, kSafetensorsPieceBytes.count() / (inputs * SizeOf(DType::kF32)));
    for (int64_t output = 0; output < outputs; output += rows_at_once) {
      const int64_t count = std::min(rows_at_once, outputs - output);
      floats_.resize(static_cast<size_t>(count * inputs));
      GANTRY_RETURN_IF_ERROR(source_(parameter, output * inputs, floats_));
      for (int64_t i = 0; i < count; ++i) {
        const float* const row = floats_.data() + i * inputs + strip_first_row_;
        for (int64_t k = 0; k < strip_rows; ++k) {
          strip_[static_cast<size_t>(k * outputs + output + i)] = row[k];
        }
      }
    }
    return absl::OkStatus();
  }

  const DType dtype_;
  const int64_t strip_bytes_;
  const std::span<const DecoderTensor> parameters_;
  const ParameterSource source_;
  std::vector<float> floats_;
  std::vector<float> strip_;
  int64_t strip_of_ = -1;
  int64_t strip_first_row_ = 0;
};

}  // namespace

absl::Status WriteWeights(const WeightWriting& writing, ParameterSource source) {
  const std::vector<DecoderTensor> parameters = DecoderTensors(*writing.config);
  std::vector<TensorToStore> tensors;
  for (const DecoderTensor& parameter : parameters) {
    tensors.push_back({.name = parameter.name,
                       .dtype = StoredForm(writing.dtype),
                       .shape = StoredShape(parameter)});
  }
  FileBytes bytes(writing, parameters, source);
  return WriteSafetensors({.files = writing.files,
                           .folder = writing.folder,
                           .shard_bytes_max = writing.shard_bytes_max},
                          tensors,
                          [&](size_t index, int64_t first_byte, std::span<std::byte> piece) {
                            return bytes.Fill(index, first_byte, piece);
                          });
}

absl::Status ReadParameter(ParameterStore& store, const std::string& name, int64_t first,
                           std::span<float> values) {
  GANTRY_ASSIGN_OR_RETURN(const TensorId id, store.layout().Find(name));
  const TensorSpec& spec = store.layout().tensor(id);
  const auto bytes = std::as_writable_bytes(values);
  if (spec.dtype == DType::kF32) return store.ReadState(StateKind::kParameter, id, first, bytes);
  if (spec.trainability == Trainability::kTrainable) {
    return store.ReadState(StateKind::kMaster, id, first, bytes);
  }
  std::vector<std::byte> stored(values.size() * static_cast<size_t>(SizeOf(spec.dtype)));
  GANTRY_RETURN_IF_ERROR(store.ReadState(StateKind::kParameter, id, first, stored));
  ToFloats(stored, spec.dtype, values);
  return absl::OkStatus();
}

}  // namespace gantry
