// Rotary position embedding of query and key heads, Llama's "rotate half" layout: dimension i of
// the first half of a head pairs with dimension i of the second half, and the pair at position p
// turns by the angle p * frequency[i]:
//
//   first'  = first * cos - second * sin
//   second' = second * cos + first * sin
//
// The backward pass is the inverse rotation (kInverse) of the gradient.
#ifndef GANTRY_KERNELS_ROPE_H_
#define GANTRY_KERNELS_ROPE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernel_context.h"
#include "kernels/views.h"

namespace gantry {

// frequency[i] = theta ^ (-2 i / head_dim) for i < head_dim / 2.
std::vector<double> RopeFrequencies(double theta, int64_t head_dim);

// Cosines and sines, times `magnitude`, for positions 0 .. positions-1, computed in double and
// rounded once to float. Immutable; about 4 * positions * head_dim bytes.
class RopeTable {
 public:
  struct Options {
    int64_t positions;
    std::span<const double> frequencies;  // [head_dim / 2]
    double magnitude = 1.0;               // cosines and sines are multiplied by it
  };
  explicit RopeTable(const Options& options);

  int64_t positions() const { return positions_; }
  int64_t head_dim() const { return 2 * half_; }
  const float* cos(int64_t position) const { return cos_.data() + position * half_; }
  const float* sin(int64_t position) const { return sin_.data() + position * half_; }

 private:
  int64_t positions_;
  int64_t half_;
  std::vector<float> cos_;  // [positions, head_dim / 2]
  std::vector<float> sin_;
};

enum class RopeDirection : uint8_t { kForward, kInverse };

// Rotates `heads` in place: [batch * tokens_per_sequence, heads * head_dim], f32 or bf16, any row
// stride (a slice of a fused qkv activation). Row r is at position
// position_offset + r % tokens_per_sequence. Arithmetic in float, one rounding per stored element.
// REQUIRES: every position is in the table; cols is a multiple of the table's head_dim.
// Thread-safe on disjoint matrices; no allocation; bits do not depend on threads or instruction
// set.
struct RopeArgs {
  MatrixView heads;
  const RopeTable* table;
  int64_t tokens_per_sequence;
  int64_t position_offset;
  RopeDirection direction;
  std::span<const int32_t> positions = {};  // [rows]: instead of the two numbers above
};
void ApplyRope(const KernelContext& context, const RopeArgs& args);

}  // namespace gantry

#endif  // GANTRY_KERNELS_ROPE_H_
