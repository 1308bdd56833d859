// Root-mean-square norm on a CUDA device: what kernels/rms_norm.h computes, with its arguments,
// whose views and spans are of device memory.
//
// Matrices are of one type, f32, bf16 or f16, any row strides (fastest where rows and the weight
// are aligned to 16 bytes; each is read from memory once then). The weight has the matrices' type
// or f32. Statistics and sums are in float, in an order that the shape alone decides: the same bits
// on every run, but not those of the host. Error: 1e-6 * sqrt(channels) (f32) or the host's
// roundings, relative to the row's largest value.
//
// Each call puts its work on the stream, does not wait, allocates nothing, and returns a cudaError
// (0: none).
#ifndef GANTRY_KERNELS_CUDA_RMS_NORM_H_
#define GANTRY_KERNELS_CUDA_RMS_NORM_H_

#include <cstdint>

#include "base/bytes.h"
#include "device/cuda/stream.h"
#include "kernels/rms_norm.h"
#include "kernels/views.h"

namespace gantry::cuda {

int RmsNormForward(CudaStream stream, const RmsNormForwardArgs& args);

// grad_weight may be f32, bf16 or f16. REQUIRES: channels <= kRmsNormChannelsMax where there is a
// grad_weight: a block keeps its sums in shared memory.
int RmsNormBackward(CudaStream stream, const RmsNormBackwardArgs& args);
inline constexpr int64_t kRmsNormChannelsMax = 24576;

// Needed where there is a grad_weight; aligned to 16 bytes. At most 1152 rows of floats. `shape` is
// [rows * groups, channels].
Bytes RmsNormBackwardWorkspace(MatrixShape shape);

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_RMS_NORM_H_
