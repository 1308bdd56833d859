// Reduction of equally long host arrays in the order given, in f32 with one rounding at the end.
// Of kMax and kMin a NaN in any of them is a NaN. Pure functions.
#ifndef GANTRY_PARALLEL_COMM_REDUCE_H_
#define GANTRY_PARALLEL_COMM_REDUCE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "parallel/comm/communicator.h"

namespace gantry {

// Elements [first, first + count) of every input into the same elements of every output. Outputs
// may be inputs; apart from that arrays do not overlap. REQUIRES: at least one input.
struct ReduceArgs {
  std::span<const std::byte* const> inputs;
  std::span<std::byte* const> outputs;
  int64_t first = 0;
  int64_t count = 0;
  DType dtype = DType::kF32;
};
void Reduce(const ReduceArgs& args, Reduction reduction);

}  // namespace gantry

#endif  // GANTRY_PARALLEL_COMM_REDUCE_H_
