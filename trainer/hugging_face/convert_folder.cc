#include "trainer/hugging_face/convert_folder.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/temporary_directory.h"
#include "placement_policy/model_config.h"
#include "trainer/hugging_face/adapter_folder.h"
#include "trainer/hugging_face/decoder_config_json.h"
#include "trainer/hugging_face/element_conversion.h"
#include "trainer/hugging_face/model_folder.h"
#include "trainer/safetensors/header.h"
#include "trainer/safetensors/reader.h"
#include "trainer/safetensors/stored_dtype.h"

namespace gantry {
namespace {

constexpr std::string_view kWeight = ".weight";

// The adapter's module for each tensor that it changes.
using MergedModules = std::map<const StoredTensor*, std::string>;

// Files of a model without its head may lack the first part of every name.
const StoredTensor* FindWeight(const SafetensorsReader& reader, const std::string& module) {
  const std::string name = StrCat(module, kWeight);
  if (const StoredTensor* found = reader.Find(name); found != nullptr) return found;
  const size_t dot = name.find('.');
  return reader.Find(std::string_view(name).substr(dot + 1));
}

absl::StatusOr<MergedModules> MatchAdapter(const SafetensorsReader& reader,
                                           const AdapterFolder& adapter) {
  MergedModules merged;
  for (const std::string& module : adapter.modules()) {
    const StoredTensor* const stored = FindWeight(reader, module);
    if (stored == nullptr) {
      return InvalidArgument("adapter '", adapter.path(), "' changes ", JsonQuoted(module),
                             ", which the model does not have: it is another model's");
    }
    if (!LoadableForm(stored->dtype).has_value()) {
      return InvalidArgument(reader.path_of(stored->file), ": ", JsonQuoted(stored->name), " is ",
                             stored->dtype, "; only F32, BF16 and F16 can be changed");
    }
    GANTRY_ASSIGN_OR_RETURN(const AdapterPair pair, adapter.Read(module));
    std::vector<int64_t> shape = {pair.out, pair.in};
    if (adapter.config().fan_in_fan_out) std::ranges::reverse(shape);
    if (stored->shape != shape) {
      return InvalidArgument("adapter '", adapter.path(), "' changes ", JsonQuoted(module),
                             " as a map of ", pair.in, " to ", pair.out,
                             ", which is not its shape in the model");
    }
    merged.emplace(stored, module);
  }
  return merged;
}

class FolderConverter {
 public:
  FolderConverter(const FolderConversion& conversion, const SafetensorsReader& reader,
                  const AdapterFolder* adapter, MergedModules merged)
      : dtype_(conversion.dtype), reader_(reader), adapter_(adapter), merged_(std::move(merged)) {}

  StoredDType TypeOf(const StoredTensor& stored) const {
    if (!dtype_.has_value() || !LoadableForm(stored.dtype).has_value()) return stored.dtype;
    return StoredForm(*dtype_);
  }

  absl::Status Fill(size_t index, int64_t first_byte, std::span<std::byte> piece) {
    const StoredTensor& stored = reader_.tensors()[index];
    const StoredDType to = TypeOf(stored);
    const bool is_merged = merged_.contains(&stored);
    if (to == stored.dtype && !is_merged) return reader_.ReadInto(stored, first_byte, piece);
    const DType from = *LoadableForm(stored.dtype);
    const DType result = *LoadableForm(to);
    const int64_t first = first_byte / SizeOf(result);
    floats_.resize(piece.size() / static_cast<size_t>(SizeOf(result)));
    raw_.resize(floats_.size() * static_cast<size_t>(SizeOf(from)));
    GANTRY_RETURN_IF_ERROR(reader_.ReadInto(stored, first * SizeOf(from), raw_));
    ToFloats(raw_, from, floats_);
    if (is_merged) GANTRY_RETURN_IF_ERROR(Merge(stored, first));
    FromFloats(floats_, result, piece);
    return absl::OkStatus();
  }

 private:
  // Adds what the adapter adds to elements from `first` on, which floats_ holds.
  absl::Status Merge(const StoredTensor& stored, int64_t first) {
    if (pair_of_ != &stored) {
      pair_of_ = nullptr;
      GANTRY_ASSIGN_OR_RETURN(pair_, adapter_->Read(merged_.at(&stored)));
      pair_of_ = &stored;
    }
    const bool transposed = adapter_->config().fan_in_fan_out;
    const auto scale = static_cast<float>(adapter_->config().scale());
    const int64_t columns = stored.shape[1];
    for (int64_t done = 0; done < std::ssize(floats_);) {
      const int64_t row = (first + done) / columns;
      const int64_t column = (first + done) % columns;
      const int64_t run = std::min(columns - column, std::ssize(floats_) - done);
      const auto values =
          std::span(floats_).subspan(static_cast<size_t>(done), static_cast<size_t>(run));
      if (transposed) {
        AddTransposed(row, column, scale, values);
      } else {
        AddRow(row, column, scale, values);
      }
      done += run;
    }
    return absl::OkStatus();
  }

  // values[i] += scale x sum over k of B[row, k] A[k, column + i].
  void AddRow(int64_t row, int64_t column, float scale, std::span<float> values) const {
    for (int64_t k = 0; k < pair_.rank; ++k) {
      const float factor = scale * pair_.b[static_cast<size_t>(row * pair_.rank + k)];
      const float* const a = pair_.a.data() + k * pair_.in + column;
      for (size_t i = 0; i < values.size(); ++i) values[i] += factor * a[i];
    }
  }

  // The map's weight is stored [in, out]: values[i] is that of input `row`, output column + i.
  void AddTransposed(int64_t row, int64_t column, float scale, std::span<float> values) const {
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t output = column + static_cast<int64_t>(i);
      float sum = 0;
      for (int64_t k = 0; k < pair_.rank; ++k) {
        sum += pair_.b[static_cast<size_t>(output * pair_.rank + k)] *
               pair_.a[static_cast<size_t>(k * pair_.in + row)];
      }
      values[i] += scale * sum;
    }
  }

  const std::optional<DType> dtype_;
  const SafetensorsReader& reader_;
  const AdapterFolder* const adapter_;
  const MergedModules merged_;
  std::vector<std::byte> raw_;
  std::vector<float> floats_;
  const StoredTensor* pair_of_ = nullptr;
  AdapterPair pair_{};
};

absl::Status WriteConfig(const FolderConversion& conversion, const std::string& folder) {
  FileCalls& files = *conversion.files;
  const std::string path = StrCat(conversion.from, "/", kConfigFile);
  GANTRY_ASSIGN_OR_RETURN(
      std::string text,
      ReadFileToString(files, path, Bytes(static_cast<int64_t>(kModelConfigBytesMax))));
  if (conversion.dtype.has_value()) {
    absl::StatusOr<std::string> changed = WithDType(text, *conversion.dtype);
    if (!changed.ok()) {
      return InvalidArgument(conversion.from, ": ", FromAbsl(changed.status().message()));
    }
    text = *std::move(changed);
  }
  return WriteFileAtomically(files, StrCat(folder, "/", kConfigFile),
                             std::as_bytes(std::span(text)));
}

}  // namespace

absl::StatusOr<ConvertedFolder> ConvertFolder(const FolderConversion& conversion) {
  GANTRY_ASSIGN_OR_RETURN(const SafetensorsReader reader,
                          SafetensorsReader::Open(conversion.files, conversion.from));
  std::optional<AdapterFolder> adapter;
  MergedModules merged;
  if (!conversion.adapter.empty()) {
    GANTRY_ASSIGN_OR_RETURN(adapter, AdapterFolder::Open(conversion.files, conversion.adapter));
    GANTRY_ASSIGN_OR_RETURN(merged, MatchAdapter(reader, *adapter));
  }
  ConvertedFolder result{.tensors = std::ssize(reader.tensors()),
                         .bytes = 0,
                         .merged = static_cast<int64_t>(merged.size())};
  FolderConverter converter(conversion, reader, adapter.has_value() ? &*adapter : nullptr,
                            std::move(merged));
  std::vector<TensorToStore> tensors;
  for (const StoredTensor& stored : reader.tensors()) {
    const StoredDType dtype = converter.TypeOf(stored);
    tensors.push_back({.name = stored.name, .dtype = dtype, .shape = stored.shape});
    GANTRY_ASSIGN_OR_RETURN(const int64_t bytes, StoredBytes(dtype, stored.shape));
    result.bytes += bytes;  // at most twice the files
  }
  GANTRY_ASSIGN_OR_RETURN(TemporaryDirectory folder,
                          TemporaryDirectory::Create(conversion.files, conversion.place));
  GANTRY_RETURN_IF_ERROR(WriteConfig(conversion, folder.path()));
  GANTRY_RETURN_IF_ERROR(CopyCompanions(*conversion.files, conversion.from, folder.path()));
  GANTRY_RETURN_IF_ERROR(
      WriteSafetensors({.files = conversion.files,
                        .folder = folder.path(),
                        .shard_bytes_max = conversion.shard_bytes_max},
                       tensors, [&](size_t index, int64_t first_byte, std::span<std::byte> piece) {
                         return converter.Fill(index, first_byte, piece);
                       }));
  GANTRY_RETURN_IF_ERROR(folder.Commit());
  return result;
}

}  // namespace gantry
