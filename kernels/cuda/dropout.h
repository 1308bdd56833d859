// Dropout on a CUDA device: what kernels/dropout.h computes, with its arguments, whose views are of
// device memory, and the same bits as there, so that a forward pass on one device and a backward or
// recomputed pass on another drop the same elements.
//
// Matrices are of one type, f32, bf16 or f16, any row strides; fastest (each element read and
// written once, a draw for four elements) where rows are aligned to 16 bytes and both cols and
// first_element are multiples of 4. The call puts its work on the stream, does not wait, and
// returns a cudaError (0: none).
#ifndef GANTRY_KERNELS_CUDA_DROPOUT_H_
#define GANTRY_KERNELS_CUDA_DROPOUT_H_

#include "device/cuda/stream.h"
#include "kernels/dropout.h"

namespace gantry::cuda {

int Dropout(CudaStream stream, const DropoutArgs& args);

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_DROPOUT_H_
