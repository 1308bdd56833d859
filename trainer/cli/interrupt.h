// Ctrl-C and SIGTERM: the first asks the run to stop at the end of its step, the second ends the
// process at once with exit code 130. (Spill files are unlinked while open, so nothing stays.)
//
// One at a time per process; restores the handlers when it goes.
#ifndef GANTRY_TRAINER_CLI_INTERRUPT_H_
#define GANTRY_TRAINER_CLI_INTERRUPT_H_

#include <signal.h>

#include "trainer/booster/stop_source.h"

namespace gantry {

inline constexpr int kExitInterrupted = 130;

class InterruptHandler {
 public:
  // `stop` outlives the handler.
  explicit InterruptHandler(StopSource* stop);
  ~InterruptHandler();
  InterruptHandler(const InterruptHandler&) = delete;
  InterruptHandler& operator=(const InterruptHandler&) = delete;

 private:
  struct sigaction old_interrupt_{};
  struct sigaction old_terminate_{};
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_INTERRUPT_H_
