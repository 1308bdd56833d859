// Without a GPU the object cannot be made, and says why with the right code. Products themselves
// are checked where there is a GPU.
#include "kernels/cuda/matmul_cublaslt.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"

namespace gantry::cuda {
namespace {

TEST(CublasLtMatMul, SaysWhyThereIsNone) {
  const auto matmul = CublasLtMatMul::Create();
  if (matmul.ok()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_TRUE(absl::IsFailedPrecondition(matmul.status()) || absl::IsUnavailable(matmul.status()))
      << matmul.status();
  EXPECT_NE(matmul.status().ToString().find("GPU"), std::string::npos) << matmul.status();
}

}  // namespace
}  // namespace gantry::cuda
