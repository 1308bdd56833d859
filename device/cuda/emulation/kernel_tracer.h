// Lets an emulated kernel reach the device's memory, page by page as it touches it, so that after
// the kernel it is known which pages it read and wrote, and so that what it must not touch is an
// error with a name instead of the end of the process. Works by catching SIGSEGV; a fault outside
// the device's addresses goes to whoever handled the signal before.
//
// Run a kernel between Begin and End on one thread, which must not hold the mutex. One tracer per
// device traces at a time.
#ifndef GANTRY_DEVICE_CUDA_EMULATION_KERNEL_TRACER_H_
#define GANTRY_DEVICE_CUDA_EMULATION_KERNEL_TRACER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "device/cuda/emulation/emulated_memory.h"

namespace gantry {

class KernelTracer {
 public:
  struct Options {
    EmulatedMemory* memory;
    Mutex* mutex;  // guards the memory
    int device;
  };
  explicit KernelTracer(const Options& options);
  ~KernelTracer();
  KernelTracer(const KernelTracer&) = delete;
  KernelTracer& operator=(const KernelTracer&) = delete;

  struct Touched {
    EmulatedMemory::Piece piece;  // whole pages
    bool written;
  };
  struct Result {
    std::vector<Touched> touched;
    bool illegal = false;  // something was touched that must not be
    std::string what;      // then: "reads byte 17 of ..."
  };

  // From here on this thread's faults are the kernel's.
  void Begin();
  // Protects all pages again.
  Result End();

 private:
  struct Page {
    std::byte* page;
    bool written;
  };
  static void Install();
  static void OnSignal(int signal, void* info, void* context);
  // Whether the fault was the kernel's. In a signal handler: allocates nothing.
  bool OnFault(std::byte* address, bool write);

  const Options options_;
  std::vector<Page> pages_;          // touched by this kernel, some twice; never grows
  std::vector<std::byte*> scratch_;  // pages that were not there; never grows
  std::byte* illegal_ = nullptr;     // the first address that must not be touched
  bool illegal_write_ = false;
  std::vector<std::byte> stack_;      // for the signal handler
  std::vector<std::byte> old_stack_;  // a stack_t: what the thread had before
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_EMULATION_KERNEL_TRACER_H_
