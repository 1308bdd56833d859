#include "base/testing/call_counts.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <thread>

#include "absl/status/status.h"

// Sanitizers make calls, and have an operator new, of their own.
#if !defined(GANTRY_ASAN) && !defined(GANTRY_TSAN)
#define GANTRY_COUNTS_ALLOCATIONS 1
#if defined(__x86_64__)
#define GANTRY_COUNTS_SYSTEM_CALLS 1
#endif
#endif

namespace gantry {
namespace {

#if defined(GANTRY_COUNTS_ALLOCATIONS)
thread_local int64_t allocations = 0;
#endif

#if defined(GANTRY_COUNTS_SYSTEM_CALLS)
// A signal handler can touch nothing else.
thread_local volatile int64_t system_calls = 0;

void RefuseCall(int /*signal*/, siginfo_t* /*info*/, void* context) {
  system_calls = system_calls + 1;
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
}

// From here on every call of this thread but those that end it, or the handler, raises SIGSYS.
bool RefuseSystemCalls() {
  const auto skip_if = [](uint32_t number, uint8_t skipped) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, skipped, 0);
  };
  std::array<sock_filter, 6> program = {
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      skip_if(SYS_rt_sigreturn, 3),
      skip_if(SYS_exit, 2),
      skip_if(SYS_exit_group, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}
#endif

}  // namespace

absl::StatusOr<int64_t> CountAllocations(const std::function<void()>& body) {
#if defined(GANTRY_COUNTS_ALLOCATIONS)
  const int64_t before = allocations;
  body();
  return allocations - before;
#else
  static_cast<void>(body);
  return absl::UnimplementedError("allocations are counted without sanitizers");
#endif
}

absl::StatusOr<int64_t> CountSystemCalls(const std::function<void()>& body) {
#if !defined(GANTRY_COUNTS_SYSTEM_CALLS)
  static_cast<void>(body);
  return absl::UnimplementedError("system calls are counted on x86-64 without sanitizers");
#else
  struct sigaction before = {};
  struct sigaction refuse = {};
  refuse.sa_sigaction = RefuseCall;
  refuse.sa_flags = SA_SIGINFO;
  if (sigaction(SIGSYS, &refuse, &before) != 0)
    return absl::UnimplementedError("SIGSYS cannot be handled");
  int64_t counted = -1;
  // thread: the filter cannot be taken off again.
  std::thread thread([&] {
    if (!RefuseSystemCalls()) return;
    body();
    counted = system_calls;
  });
  thread.join();
  sigaction(SIGSYS, &before, nullptr);
  if (counted < 0) return absl::UnimplementedError("the kernel refuses seccomp filters");
  return counted;
#endif
}

}  // namespace gantry

#if defined(GANTRY_COUNTS_ALLOCATIONS)
// Plain ones that count.
void* operator new(std::size_t bytes) {
  ++gantry::allocations;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
#endif
