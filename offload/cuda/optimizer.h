// Optimizer updates on a CUDA device: the same bits as offload/optimizer.h, whatever mix of devices
// updates a model. Pointers are of device memory. Each call puts its work on the stream, does not
// wait, and returns a cudaError (0: none).
#ifndef GANTRY_OFFLOAD_CUDA_OPTIMIZER_H_
#define GANTRY_OFFLOAD_CUDA_OPTIMIZER_H_

#include <cstdint>

#include "device/cuda/stream.h"
#include "offload/elements.h"
#include "offload/optimizer.h"

namespace gantry::cuda {

// REQUIRES: as UpdateElements.
int UpdateElements(CudaStream stream, const OptimizerSlice& slice, const OptimizerScalars& scalars,
                   float gradient_factor);

// Writes what SegmentSumSquares (offload/gradient_norm.h) does to SegmentCount(count) partials: the
// gradient is finite if and only if all of them are.
int SegmentSumSquares(CudaStream stream, ConstElements gradient, int64_t count, double* partials);

}  // namespace gantry::cuda

#endif  // GANTRY_OFFLOAD_CUDA_OPTIMIZER_H_
