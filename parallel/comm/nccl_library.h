// NCCL itself, found at run time: nothing links it, so the program starts where it is missing.
#ifndef GANTRY_PARALLEL_COMM_NCCL_LIBRARY_H_
#define GANTRY_PARALLEL_COMM_NCCL_LIBRARY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "parallel/comm/nccl_calls.h"

namespace gantry {

inline constexpr int kNcclVersionLeast = 21801;  // 2.18.1: ncclCommSplit

// Loads the library named `name`, as dlopen finds it; it stays loaded. Errors: kNotFound where
// there is none or it lacks a call; kFailedPrecondition for a version below kNcclVersionLeast;
// kUnimplemented in a build without the CUDA toolkit's headers. Each says what is needed.
absl::StatusOr<std::unique_ptr<NcclCalls>> LoadNccl(const std::string& name = "libnccl.so.2");

}  // namespace gantry

#endif  // GANTRY_PARALLEL_COMM_NCCL_LIBRARY_H_
