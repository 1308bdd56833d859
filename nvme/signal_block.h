// Blocks signals around the creation of an I/O thread, which inherits the mask: handlers of the
// program then never run there, and no wait there ends with EINTR.
#ifndef GANTRY_NVME_SIGNAL_BLOCK_H_
#define GANTRY_NVME_SIGNAL_BLOCK_H_

#include <csignal>

namespace gantry {

// Blocks every signal in this thread for a scope, except those that report a fault of the program
// (SIGSEGV, SIGABRT, ...) and SIGPROF, which profilers need. REQUIRES: destroyed by the thread that
// made it.
class ScopedSignalBlock {
 public:
  ScopedSignalBlock();
  ~ScopedSignalBlock();
  ScopedSignalBlock(const ScopedSignalBlock&) = delete;
  ScopedSignalBlock& operator=(const ScopedSignalBlock&) = delete;

 private:
  sigset_t previous_;
};

}  // namespace gantry

#endif  // GANTRY_NVME_SIGNAL_BLOCK_H_
