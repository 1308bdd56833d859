// SwiGLU on a CUDA device: what kernels/swiglu.h computes, with its arguments, whose views are of
// device memory, and the same bits as there. Matrices are of one type, f32, bf16 or f16, any row
// strides; fastest where rows are aligned to 16 bytes, each element read and written once.
//
// Each call puts its work on the stream, does not wait, and returns a cudaError (0: none).
#ifndef GANTRY_KERNELS_CUDA_SWIGLU_H_
#define GANTRY_KERNELS_CUDA_SWIGLU_H_

#include "device/cuda/stream.h"
#include "kernels/swiglu.h"

namespace gantry::cuda {

int SwiGluForward(CudaStream stream, const SwiGluForwardArgs& args);
int SwiGluBackward(CudaStream stream, const SwiGluBackwardArgs& args);

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_SWIGLU_H_
