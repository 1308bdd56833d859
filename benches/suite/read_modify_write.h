// The least an optimizer can do to memory: reads and writes the same arrays in place, with next to
// no arithmetic. What an update is compared with, since it never streams: STREAM's figures are no
// ceiling for it.
//
// Thread-safe: calls over disjoint ranges may run at once.
#ifndef GANTRY_BENCHES_SUITE_READ_MODIFY_WRITE_H_
#define GANTRY_BENCHES_SUITE_READ_MODIFY_WRITE_H_

#include <array>
#include <cstdint>

#include "base/parallel_for.h"

namespace gantry {

// Arrays of one update; those that it does not have are null, behind those that it has.
struct UpdateArrays {
  int64_t count = 0;                     // elements of each; a multiple of 16
  std::array<float*, 3> floats = {};     // read and written: master, momentum, variance
  std::array<uint16_t*, 2> halves = {};  // read and written: low halves, pairs of 8-bit codes
  const uint16_t* gradient = nullptr;    // read
  uint16_t* parameter = nullptr;         // written; null: it is among the halves

  int64_t bytes_per_element() const;
};

// Goes over all elements in tasks like those of the optimizers, on the best instruction set.
void ReadModifyWrite(const UpdateArrays& arrays, ThreadTeam* team);

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_READ_MODIFY_WRITE_H_
