// One checksum (the low half of XXH3's 128 bits) compiled for the instruction sets that not every
// processor has. Each lies in a source of its own, compiled with its own options, which includes
// nothing of C++'s library: an inline function that such a source shares with others could end up
// in the program in a form that older processors do not understand.
//
// For base/hash.cc, which chooses.
#ifndef GANTRY_BASE_HASH_KERNELS_H_
#define GANTRY_BASE_HASH_KERNELS_H_

#include <stddef.h>
#include <stdint.h>

namespace gantry {

using HashKernel = uint64_t (*)(const void* bytes, size_t size);

// Null in a program for another kind of processor. REQUIRES, of calling what they return: this
// processor has the instruction set.
HashKernel HashKernelAvx2();
HashKernel HashKernelAvx512();

}  // namespace gantry

#endif  // GANTRY_BASE_HASH_KERNELS_H_
