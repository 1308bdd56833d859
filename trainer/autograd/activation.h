// A matrix of activations in arena memory, shared by whoever holds a handle to it; the memory goes
// back to the arena with the last handle. Handles are cheap to copy (one reference count).
//
// In a dry run the memory does not exist: only kernels may look at data, and Tape::Run keeps them
// from running then. An activation without memory (has_memory() false) has a shape only: it is what
// operators get while a recomputation skips values that nothing reads.
//
// One thread (the compute thread) uses all handles of an arena.
#ifndef GANTRY_TRAINER_AUTOGRAD_ACTIVATION_H_
#define GANTRY_TRAINER_AUTOGRAD_ACTIVATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "device/activation_arena.h"
#include "kernels/views.h"

namespace gantry {

class Activation {
 public:
  // Neither shape nor memory.
  Activation() = default;
  // A shape without memory.
  Activation(MatrixShape shape, DType dtype) : shape_(shape), dtype_(dtype) {}

  // Uninitialised. Errors: kResourceExhausted from the arena.
  static absl::StatusOr<Activation> Allocate(ActivationArena& arena, MatrixShape shape,
                                             DType dtype);

  bool has_memory() const { return buffer_ != nullptr; }
  // Whether this handle is the only one of its memory.
  bool unique() const { return buffer_.use_count() == 1; }
  int64_t rows() const { return shape_.rows; }
  int64_t cols() const { return shape_.cols; }
  MatrixShape shape() const { return shape_; }
  DType dtype() const { return dtype_; }

  // Contiguous; valid while a handle lives.
  MatrixView matrix() const;
  VectorView flat() const { return matrix().Flat(); }

 private:
  std::shared_ptr<ArenaBuffer> buffer_;  // shared: by the values of an operator and those it saves
  MatrixShape shape_{.rows = 0, .cols = 0};
  DType dtype_ = DType::kF32;
};

// The bytes of a buffer, for kernels' scratch memory.
inline std::span<std::byte> SpanOf(const ArenaBuffer& buffer) {
  return {buffer.data(), static_cast<size_t>(buffer.bytes())};
}

}  // namespace gantry

#endif  // GANTRY_TRAINER_AUTOGRAD_ACTIVATION_H_
