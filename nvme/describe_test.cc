#include "nvme/describe.h"

#include <fcntl.h>

#include <cerrno>

#include "base/files.h"
#include "gtest/gtest.h"

namespace gantry {
namespace {

TEST(DescribeTest, NamesFilesAndErrnos) {
  const FileDescriptor fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(DescribeFd(fd.get()), "/dev/null");
  EXPECT_EQ(DescribeFd(987'654), "fd 987654");
  EXPECT_EQ(DescribeErrno(ENOSPC), "ENOSPC (No space left on device)");
  EXPECT_EQ(DescribeErrno(123'456), "errno 123456");
}

}  // namespace
}  // namespace gantry
