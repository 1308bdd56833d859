#include "trainer/cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string_view>

#include "base/check.h"
#include "trainer/booster/stop_source.h"

namespace gantry {
namespace {

// A handler has no argument to carry this. Constant-initialised, so safe to read in a handler.
std::atomic<StopSource*>& CurrentStop() {
  static constinit std::atomic<StopSource*> stop = nullptr;
  static_assert(std::atomic<StopSource*>::is_always_lock_free);
  return stop;
}

void OnSignal(int) {
  const int saved_errno = errno;
  StopSource* const stop = CurrentStop().load();
  if (stop == nullptr || stop->requested()) _exit(kExitInterrupted);
  stop->Request();
  constexpr std::string_view kMessage =
      "\ngantry: stopping at the end of this step; once more ends at once\n";
  if (write(STDERR_FILENO, kMessage.data(), kMessage.size()) < 0) {
    // Nobody reads it: not worth more in a handler.
  }
  errno = saved_errno;
}

}  // namespace

InterruptHandler::InterruptHandler(StopSource* stop) {
  GANTRY_CHECK(CurrentStop().exchange(stop) == nullptr) << "two interrupt handlers";
  struct sigaction action{};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  GANTRY_CHECK_EQ(sigaction(SIGINT, &action, &old_interrupt_), 0);
  GANTRY_CHECK_EQ(sigaction(SIGTERM, &action, &old_terminate_), 0);
}

InterruptHandler::~InterruptHandler() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
  CurrentStop().store(nullptr);
}

}  // namespace gantry
