#include "base/hash_kernels.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace gantry {
#if defined(__AVX2__)

HashKernel HashKernelAvx2() {
  return [](const void* bytes, size_t size) -> uint64_t { return XXH3_128bits(bytes, size).low64; };
}

#else

HashKernel HashKernelAvx2() { return nullptr; }

#endif
}  // namespace gantry
