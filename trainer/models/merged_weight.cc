#include "trainer/models/merged_weight.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/low_rank.h"
#include "kernels/views.h"
#include "kernels/workspace.h"

namespace gantry {
namespace {

// The bytes of a tensor, and how kernels see them.
struct Loaded {
  std::vector<std::byte> bytes;
  MatrixShape shape;
  DType dtype;

  MatrixView view() {
    return {.data = bytes.data(),
            .dtype = dtype,
            .rows = shape.rows,
            .cols = shape.cols,
            .row_stride = shape.cols};
  }
};

absl::StatusOr<Loaded> Load(const DecoderModel& model, const RegisteredTensor& tensor) {
  Loaded loaded{.bytes = {}, .shape = {}, .dtype = model.config().parameter_dtype};
  const bool is_vector = tensor.shape.size() == 1;
  loaded.shape = {.rows = is_vector ? 1 : tensor.shape[0], .cols = tensor.shape.back()};
  loaded.bytes.resize(static_cast<size_t>(tensor.elements * SizeOf(loaded.dtype)));
  GANTRY_RETURN_IF_ERROR(
      model.context().store->ReadState(StateKind::kParameter, tensor.tensor, 0, loaded.bytes));
  return loaded;
}

}  // namespace

absl::StatusOr<std::vector<std::byte>> MergedWeight(const DecoderModel& model,
                                                    std::string_view name) {
  const DecoderWeights& weights = model.weights();
  const auto base = std::ranges::find(weights.tensors, name, &RegisteredTensor::name);
  if (base == weights.tensors.end()) return NotFound("no parameter of the base is called ", name);
  GANTRY_ASSIGN_OR_RETURN(Loaded weight, Load(model, *base));
  const std::string module = base->name.substr(0, base->name.rfind('.'));
  const auto adapter = [&](std::string_view end) -> const RegisteredTensor* {
    const auto found =
        std::ranges::find(weights.adapters, StrCat(module, end), &RegisteredTensor::name);
    return found == weights.adapters.end() ? nullptr : &*found;
  };
  const RegisteredTensor* a = adapter(".lora_A.weight");
  if (a == nullptr || base->shape.size() != 2) return std::move(weight.bytes);
  GANTRY_ASSIGN_OR_RETURN(Loaded a_values, Load(model, *a));
  GANTRY_ASSIGN_OR_RETURN(Loaded b_values, Load(model, *adapter(".lora_B.weight")));
  Loaded magnitude;
  std::optional<ConstVectorView> magnitudes;
  if (const RegisteredTensor* m = adapter(".lora_magnitude_vector"); m != nullptr) {
    GANTRY_ASSIGN_OR_RETURN(magnitude, Load(model, *m));
    magnitudes = magnitude.view().Flat();
  }
  const Bytes scratch = LowRankWorkspace(weight.shape);
  std::vector<std::byte> memory(static_cast<size_t>(scratch.count() + kWorkspaceAlignment));
  void* start = memory.data();
  size_t space = memory.size();
  std::align(static_cast<size_t>(kWorkspaceAlignment), static_cast<size_t>(scratch.count()), start,
             space);
  GANTRY_RETURN_IF_ERROR(MergeLowRank(
      model.context().kernels,
      {.weight = weight.view(),
       .change = {.a = a_values.view(),
                  .b = b_values.view(),
                  .scale = static_cast<float>(model.lora()->scale())},
       .magnitude = magnitudes,
       .workspace = {static_cast<std::byte*>(start), static_cast<size_t>(scratch.count())}}));
  return std::move(weight.bytes);
}

}  // namespace gantry
