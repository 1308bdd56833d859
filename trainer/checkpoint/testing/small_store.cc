#include "trainer/checkpoint/testing/small_store.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "chunk/block.h"
#include "chunk/chunk_layout.h"
#include "chunk/optimizer_states.h"
#include "gemini/testing/memory_store.h"

namespace gantry {
namespace {

std::vector<StateKind> KindsOf(const ChunkLayout& layout, TensorId tensor) {
  std::vector<StateKind> kinds;
  for (const StateKind kind :
       {StateKind::kParameter, StateKind::kMaster, StateKind::kMomentum, StateKind::kVariance}) {
    if (layout.HasState(kind, tensor)) kinds.push_back(kind);
  }
  return kinds;
}

DType DTypeOfKind(const TensorSpec& spec, StateKind kind) {
  return kind == StateKind::kParameter ? spec.dtype : DType::kF32;
}

// `count` numbers in f32 or bf16.
std::vector<std::byte> RandomElements(const Random& random, int64_t count, DType dtype,
                                      uint64_t& index) {
  const auto element_bytes = static_cast<size_t>(SizeOf(dtype));
  std::vector<std::byte> bytes(static_cast<size_t>(count) * element_bytes);
  for (size_t at = 0; at < bytes.size(); at += element_bytes) {
    const auto value = static_cast<float>(random.Normal(index++));
    const uint16_t rounded = FloatToBF16Bits(value);
    const void* const from = dtype == DType::kF32 ? static_cast<const void*>(&value)
                                                  : static_cast<const void*>(&rounded);
    std::memcpy(bytes.data() + at, from, element_bytes);
  }
  return bytes;
}

}  // namespace

std::vector<TensorSpec> SmallModel() {
  return {{.name = "embed", .shape = {7, 11}, .dtype = DType::kBF16},
          {.name = "norm", .shape = {33}, .dtype = DType::kF32},
          {.name = "frozen",
           .shape = {3, 5},
           .dtype = DType::kBF16,
           .trainability = Trainability::kFrozen},
          {.name = "scalar", .shape = {}, .dtype = DType::kBF16}};
}

SmallStore MakeSmallStore(const std::vector<TensorSpec>& tensors, int64_t chunk_elements,
                          OptimizerKind optimizer, StateFormat format) {
  SmallStore result;
  auto team = ThreadTeam::Create({.threads = 1});
  GANTRY_CHECK_OK(team.status());
  result.team = *std::move(team);
  auto store = MemoryStore::Create({.chunk_elements = chunk_elements,
                                    .gradient_dtype = DType::kF32,
                                    .activation_slots = 1,
                                    .team = result.team.get(),
                                    .optimizer = optimizer,
                                    .state_format = format});
  GANTRY_CHECK_OK(store.status());
  result.store = *std::move(store);
  for (const TensorSpec& spec : tensors) {
    const auto id = result.store->Register(spec, {});
    GANTRY_CHECK_OK(id.status());
    if (spec.name == "embed") GANTRY_CHECK_OK(result.store->Alias("head", *id));
  }
  GANTRY_CHECK_OK(result.store->Seal());
  return result;
}

void FillStates(MemoryStore& store, uint64_t seed) {
  const Random random({.seed = seed, .stream = 1});
  uint64_t index = 0;
  for (int64_t i = 0; i < store.layout().tensor_count(); ++i) {
    const TensorId id(i);
    const TensorSpec& spec = store.layout().tensor(id);
    for (const StateKind kind : KindsOf(store.layout(), id)) {
      // The parameter of a trainable tensor follows from its master.
      if (kind == StateKind::kParameter && spec.trainability == Trainability::kTrainable) continue;
      const std::vector<std::byte> bytes = RandomElements(
          random, store.layout().StateElements(kind, id), DTypeOfKind(spec, kind), index);
      GANTRY_CHECK_OK(store.WriteState(kind, id, 0, bytes));
    }
  }
}

std::vector<std::byte> AllStates(MemoryStore& store) {
  std::vector<std::byte> all;
  for (int64_t i = 0; i < store.layout().tensor_count(); ++i) {
    const TensorId id(i);
    const TensorSpec& spec = store.layout().tensor(id);
    for (const StateKind kind : KindsOf(store.layout(), id)) {
      const int64_t bytes =
          store.layout().StateElements(kind, id) * SizeOf(DTypeOfKind(spec, kind));
      const size_t begin = all.size();
      all.resize(begin + static_cast<size_t>(bytes));
      GANTRY_CHECK_OK(store.ReadState(kind, id, 0, std::span(all).subspan(begin)));
    }
  }
  return all;
}

}  // namespace gantry
