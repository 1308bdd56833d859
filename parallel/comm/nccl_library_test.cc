#include "parallel/comm/nccl_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/comm/nccl_calls.h"

namespace gantry {
namespace {

TEST(NcclLibraryTest, TheLibraryOfThisMachine) {
  absl::StatusOr<std::unique_ptr<NcclCalls>> calls = LoadNccl();
  if (!calls.ok()) GTEST_SKIP() << "not run: " << calls.status();
  int version = 0;
  EXPECT_EQ((*calls)->GetVersion(&version), NcclResult::kSuccess);
  EXPECT_GE(version, kNcclVersionLeast);
  EXPECT_EQ((*calls)->ErrorString(NcclResult::kSuccess), "no error");
}

TEST(NcclLibraryTest, SaysWhatIsMissing) {
  const absl::Status missing = LoadNccl("libno-such-nccl.so").status();
  if (missing.code() == absl::StatusCode::kUnimplemented) {
    EXPECT_THAT(std::string(missing.message()), ::testing::HasSubstr("CUDA toolkit"));
    return;
  }
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), ::testing::HasSubstr("libno-such-nccl.so"));
  const absl::Status other = LoadNccl("libm.so.6").status();
  EXPECT_EQ(other.message(), "libm.so.6 has no ncclGetVersion; NCCL 2.18.1 or newer is needed");
}

}  // namespace
}  // namespace gantry
