#include "nvme/signal_block.h"

#include <pthread.h>

#include <csignal>

#include "base/check.h"

namespace gantry {

ScopedSignalBlock::ScopedSignalBlock() {
  sigset_t blocked;
  GANTRY_CHECK_EQ(sigfillset(&blocked), 0);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) {
    GANTRY_CHECK_EQ(sigdelset(&blocked, signal), 0);
  }
  GANTRY_CHECK_EQ(pthread_sigmask(SIG_SETMASK, &blocked, &previous_), 0);
}

ScopedSignalBlock::~ScopedSignalBlock() {
  GANTRY_CHECK_EQ(pthread_sigmask(SIG_SETMASK, &previous_, nullptr), 0);
}

}  // namespace gantry
