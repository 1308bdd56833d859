// A queue of work on a CUDA device, as the launch functions of kernels take it: a cudaStream_t, or
// where kernels are emulated a StreamRunner*. Without CUDA's headers.
#ifndef GANTRY_DEVICE_CUDA_STREAM_H_
#define GANTRY_DEVICE_CUDA_STREAM_H_

namespace gantry {

using CudaStream = void*;

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_STREAM_H_
