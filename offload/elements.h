// Views of elements of one of the float types in host memory: a pointer and its type. The pointer
// is aligned to one element, not necessarily to a vector. The viewer owns nothing; the length is
// held by whoever holds the view.
#ifndef GANTRY_OFFLOAD_ELEMENTS_H_
#define GANTRY_OFFLOAD_ELEMENTS_H_

#include "base/dtype.h"

namespace gantry {

struct ConstElements {
  const void* data;
  DType dtype;
};

struct Elements {
  void* data;
  DType dtype;
};

}  // namespace gantry

#endif  // GANTRY_OFFLOAD_ELEMENTS_H_
