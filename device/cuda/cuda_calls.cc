#include "device/cuda/cuda_calls.h"

namespace gantry {

CudaCalls::~CudaCalls() = default;

}  // namespace gantry
