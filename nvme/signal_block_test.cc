#include "nvme/signal_block.h"

#include <pthread.h>

#include <csignal>

#include "gtest/gtest.h"

namespace gantry {
namespace {

bool IsBlocked(int signal) {
  sigset_t mask;
  EXPECT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &mask), 0);
  return sigismember(&mask, signal) == 1;
}

TEST(ScopedSignalBlockTest, BlocksWithinTheScope) {
  EXPECT_FALSE(IsBlocked(SIGTERM));
  {
    const ScopedSignalBlock block;
    EXPECT_TRUE(IsBlocked(SIGTERM));
    EXPECT_TRUE(IsBlocked(SIGXFSZ));
    EXPECT_FALSE(IsBlocked(SIGSEGV));
    EXPECT_FALSE(IsBlocked(SIGPROF));
  }
  EXPECT_FALSE(IsBlocked(SIGTERM));
}

}  // namespace
}  // namespace gantry
