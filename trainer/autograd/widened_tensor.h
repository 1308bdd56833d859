// What f16 tensors of a lease are to kernels, which know f32 and bf16: f32 copies, in memory of the
// arena.
#ifndef GANTRY_TRAINER_AUTOGRAD_WIDENED_TENSOR_H_
#define GANTRY_TRAINER_AUTOGRAD_WIDENED_TENSOR_H_

#include <utility>

#include "absl/status/statusor.h"
#include "base/parallel_for.h"
#include "device/activation_arena.h"
#include "gemini/parameter_store.h"

namespace gantry {

// Whether the leased value or gradient is f16.
bool HasHalves(const LeasedTensor& tensor);

// Move-only; owns the copies. Thread-compatible.
class WidenedTensor {
 public:
  // Copies of what is leased of the tensor and f16; nothing is filled. The arena outlives the
  // object. Errors: those of the arena.
  static absl::StatusOr<WidenedTensor> Create(ActivationArena& arena, const LeasedTensor& leased);

  // As the kernels get it.
  const LeasedTensor& tensor() const { return tensor_; }
  // Fills the copies: of the value, and of a gradient that carries contributions.
  void Load(ThreadTeam& team) const;
  // Rounds the gradient back into the lease: what is out of the range of f16 becomes infinite.
  void Store(ThreadTeam& team) const;

 private:
  explicit WidenedTensor(const LeasedTensor& leased) : leased_(leased), tensor_(leased) {}

  LeasedTensor leased_;
  LeasedTensor tensor_;
  ArenaBuffer value_;     // empty: the leased one is used
  ArenaBuffer gradient_;  // likewise
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_AUTOGRAD_WIDENED_TENSOR_H_
