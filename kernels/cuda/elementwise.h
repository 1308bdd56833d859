// Element-by-element operations on a CUDA device, as kernels/elementwise.h says what they compute:
// the same bits as there. Cast, Scale and SetZero also take f16. Views are of device memory. Each
// puts its work on the stream, does not wait, and returns a cudaError (0: none).
#ifndef GANTRY_KERNELS_CUDA_ELEMENTWISE_H_
#define GANTRY_KERNELS_CUDA_ELEMENTWISE_H_

#include "device/cuda/stream.h"
#include "kernels/elementwise.h"
#include "kernels/views.h"

namespace gantry::cuda {

int Add(CudaStream stream, const AddArgs& args);
int Cast(CudaStream stream, const CastArgs& args);
int Scale(CudaStream stream, VectorView values, float factor);
int SetZero(CudaStream stream, VectorView values);
int Axpy(CudaStream stream, const AxpyArgs& args);

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_ELEMENTWISE_H_
