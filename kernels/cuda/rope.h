// Rotary position embedding on a CUDA device, in place: what kernels/rope.h computes, the same bits
// as there. The backward pass is the inverse rotation of the gradient.
//
// Heads are f32, bf16 or f16, any row stride (fastest where rows and tables are aligned to 16 bytes
// and head_dim is a multiple of 16; each element is read and written once then). Arithmetic in
// float, one rounding per stored element.
//
// Pointers are of device memory. The call puts its work on the stream, does not wait, and returns a
// cudaError (0: none).
#ifndef GANTRY_KERNELS_CUDA_ROPE_H_
#define GANTRY_KERNELS_CUDA_ROPE_H_

#include <cstdint>
#include <span>

#include "device/cuda/stream.h"
#include "kernels/rope.h"
#include "kernels/views.h"

namespace gantry::cuda {

// Which dimensions of a head turn together: i and i + head_dim / 2 (Llama), or 2i and 2i + 1
// (DeepSeek).
enum class RopeLayout : uint8_t { kHalves, kPairs };

struct RopeArgs {
  MatrixView heads;  // [rows, heads * head_dim]
  int64_t head_dim;  // even
  RopeLayout layout;
  RopeDirection direction;
  const float* cos;  // [positions, head_dim / 2], as RopeTable has it
  const float* sin;
  // Of each row (packed documents), or empty: position_offset + row % tokens_per_sequence.
  std::span<const int32_t> positions;
  int64_t tokens_per_sequence;
  int64_t position_offset;
};
// REQUIRES: every position is in the table; heads.cols is a multiple of head_dim, below 2^31.
int ApplyRope(CudaStream stream, const RopeArgs& args);

}  // namespace gantry::cuda

#endif  // GANTRY_KERNELS_CUDA_ROPE_H_
