// A function that can be suspended and resumed, on a stack of its own. What a CUDA thread is in the
// emulation: a block's thousand threads on one thread of the operating system.
//
// Thread-compatible: created, resumed and destroyed by one thread. A fiber that is destroyed while
// suspended is forgotten, not unwound: its locals' destructors do not run.
#ifndef GANTRY_DEVICE_CUDA_EMULATION_FIBER_H_
#define GANTRY_DEVICE_CUDA_EMULATION_FIBER_H_

#include <cstddef>
#include <functional>

namespace gantry {

class Fiber {
 public:
  // Reserves a stack, with a page below it whose use is a fault. The body must not throw.
  Fiber(size_t stack_bytes, std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body from where it stopped until it suspends or ends. REQUIRES: !done(); the caller is
  // not this fiber.
  void Resume();
  // Back to whoever resumed. REQUIRES: called by the body of this fiber.
  void Suspend();
  bool done() const { return done_; }

 private:
  struct Entry;

  void Run();
  void SwitchIn();
  void SwitchOut();

  const std::function<void()> body_;
  std::byte* mapping_ = nullptr;  // a guard page, then the stack
  size_t mapping_bytes_ = 0;
  void* inside_ = nullptr;   // where the body goes on
  void* outside_ = nullptr;  // where the resumer goes on
  bool done_ = false;
  // For the sanitizers, which must know of every change of stack.
  void* resumer_fake_stack_ = nullptr;
  void* own_fake_stack_ = nullptr;
  const void* resumer_stack_ = nullptr;
  size_t resumer_stack_bytes_ = 0;
  void* resumer_tsan_fiber_ = nullptr;
  void* own_tsan_fiber_ = nullptr;
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_EMULATION_FIBER_H_
