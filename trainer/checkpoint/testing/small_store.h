// A model of a few tensors of every kind that checkpoints distinguish, in plain memory, for tests.
// Thread-compatible; the store refers to the team.
#ifndef GANTRY_TRAINER_CHECKPOINT_TESTING_SMALL_STORE_H_
#define GANTRY_TRAINER_CHECKPOINT_TESTING_SMALL_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/parallel_for.h"
#include "chunk/chunk_layout.h"
#include "chunk/optimizer_states.h"
#include "gemini/testing/memory_store.h"

namespace gantry {

// A trainable bf16 tensor with an alias, a trainable f32 one, a frozen bf16 one and a bf16 scalar.
std::vector<TensorSpec> SmallModel();

struct SmallStore {
  std::unique_ptr<ThreadTeam> team;  // of one thread: safe to use after fork
  std::unique_ptr<MemoryStore> store;
};

// Sealed, all states zero. Aborts on errors.
SmallStore MakeSmallStore(const std::vector<TensorSpec>& tensors, int64_t chunk_elements,
                          OptimizerKind optimizer = OptimizerKind::kAdamW,
                          StateFormat format = StateFormat::kF32);

// Fills every saved state with finite numbers that depend on the seed.
void FillStates(MemoryStore& store, uint64_t seed);

// The bytes of every readable state of every tensor, for comparison.
std::vector<std::byte> AllStates(MemoryStore& store);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHECKPOINT_TESTING_SMALL_STORE_H_
