// The parameters of one operator as its kernels see them: positions as in the operator's list,
// whichever of them were leased, and as matrices of the kernels.
// Value types over a lease that the tape holds while kernels run.
#ifndef GANTRY_TRAINER_AUTOGRAD_PARAMETER_LEASE_H_
#define GANTRY_TRAINER_AUTOGRAD_PARAMETER_LEASE_H_

#include <array>
#include <cstdint>

#include "base/check.h"
#include "base/ids.h"
#include "chunk/chunk_layout.h"
#include "gemini/parameter_store.h"
#include "kernels/views.h"

namespace gantry {

// A registered tensor as operators know it.
struct Parameter {
  TensorId tensor = TensorId(-1);  // registered
  Trainability trainability = Trainability::kTrainable;
  bool trainable() const { return trainability == Trainability::kTrainable; }
};

// Whether an operator's backward pass reads the parameter's value.
enum class BackwardRead : uint8_t { kNone, kValue };

struct BackwardUse {
  Parameter parameter;
  BackwardRead read;
};

// What an operator uses a parameter for in one lease; see Tape.
class LeasedParameters {
 public:
  // What the i-th parameter of the operator's list leased.
  void Set(int i, const LeasedTensor& tensor) {
    GANTRY_CHECK(i >= 0 && i < Lease::kTensorsMax) << i;
    tensors_[static_cast<size_t>(i)] = tensor;
  }

  // REQUIRES: the operator asked to read it.
  ConstMatrixView Value(int i, MatrixShape shape) const;
  // REQUIRES: the parameter is trainable and the lease is a backward one.
  MatrixView Gradient(int i, MatrixShape shape) const;
  // Whether the operator adds to the gradient or overwrites it. REQUIRES: as Gradient.
  Accumulate GradientAccumulate(int i) const;
  bool HasGradient(int i) const { return At(i).gradient != nullptr; }

 private:
  const LeasedTensor& At(int i) const {
    GANTRY_CHECK(i >= 0 && i < Lease::kTensorsMax) << i;
    return tensors_[static_cast<size_t>(i)];
  }

  static constexpr LeasedTensor kNotLeased{.tensor = TensorId(-1),
                                           .parameter = nullptr,
                                           .gradient = nullptr,
                                           .gradient_content = GradientContent::kEmpty,
                                           .dtype = DType::kF32,
                                           .gradient_dtype = DType::kF32,
                                           .elements = 0};
  std::array<LeasedTensor, Lease::kTensorsMax> tensors_{kNotLeased, kNotLeased, kNotLeased,
                                                        kNotLeased, kNotLeased, kNotLeased,
                                                        kNotLeased, kNotLeased};
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_AUTOGRAD_PARAMETER_LEASE_H_
