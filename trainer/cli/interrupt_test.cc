#include "trainer/cli/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "trainer/booster/stop_source.h"

namespace gantry {
namespace {

TEST(InterruptDeathTest, TheFirstSignalAsksTheSecondEnds) {
  for (const int first : {SIGINT, SIGTERM}) {
    for (const int second : {SIGINT, SIGTERM}) {
      EXPECT_EXIT(
          {
            StopSource stop;
            const InterruptHandler handler(&stop);
            if (stop.requested()) _exit(1);
            raise(first);
            if (!stop.requested()) _exit(2);
            raise(second);
            _exit(3);
          },
          ::testing::ExitedWithCode(kExitInterrupted),
          "stopping at the end of this step; once more ends at once");
    }
  }
}

TEST(InterruptDeathTest, HandlersComeBack) {
  EXPECT_EXIT(
      {
        signal(SIGINT, SIG_IGN);
        StopSource stop;
        {
          const InterruptHandler handler(&stop);
        }
        raise(SIGINT);
        _exit(stop.requested() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        StopSource stop;
        {
          const InterruptHandler handler(&stop);
        }
        raise(SIGTERM);
        _exit(0);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

TEST(InterruptDeathTest, OneAtATime) {
  EXPECT_DEATH(
      {
        StopSource stop;
        const InterruptHandler one(&stop);
        const InterruptHandler two(&stop);
      },
      "two interrupt handlers");
}

}  // namespace
}  // namespace gantry
