#include "device/cuda/emulation/kernel_tracer.h"

#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "device/cuda/emulation/emulated_memory.h"

namespace gantry {
namespace {

constexpr uintptr_t kPage = 4096;
constexpr size_t kPagesMax = size_t{1} << 18;  // of one kernel: 1 GiB
constexpr size_t kScratchMax = 64;
constexpr size_t kStackBytes = size_t{64} << 10;

// Whose kernel this thread runs: a signal handler has no other way to know.
thread_local KernelTracer* current = nullptr;

// Who handled the signal before. Set once, before the handler is.
struct sigaction& Previous() {
  static struct sigaction previous = {};
  return previous;
}

bool IsWrite(const void* context) {
#if defined(__x86_64__)
  const auto* machine = static_cast<const ucontext_t*>(context);
  return (machine->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
  return context != nullptr;  // not known: the stronger of the two
#endif
}

}  // namespace

KernelTracer::KernelTracer(const Options& options)
    : options_(options), stack_(kStackBytes), old_stack_(sizeof(stack_t)) {
  pages_.reserve(kPagesMax);
  scratch_.reserve(kScratchMax);
  Install();
}

KernelTracer::~KernelTracer() = default;

void KernelTracer::Install() {
  static const bool kInstalled = [] {
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    action.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
      OnSignal(signal, info, context);
    };
    return sigaction(SIGSEGV, nullptr, &Previous()) == 0 &&
           sigaction(SIGSEGV, &action, nullptr) == 0;
  }();
  GANTRY_CHECK(kInstalled) << std::strerror(errno);
}

void KernelTracer::OnSignal(int signal, void* info, void* context) {
  const int error_number = errno;
  auto* const what = static_cast<siginfo_t*>(info);
  const bool served = current != nullptr &&
                      current->OnFault(static_cast<std::byte*>(what->si_addr), IsWrite(context));
  errno = error_number;
  if (served) return;
  const struct sigaction& previous = Previous();
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, what, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    // The instruction runs again, and this time the process ends.
    static_cast<void>(sigaction(signal, &previous, nullptr));
  }
}

bool KernelTracer::OnFault(std::byte* address, bool write) {
  std::byte* const page = address - reinterpret_cast<uintptr_t>(address) % kPage;
  MutexLock lock(*options_.mutex);
  const auto access = write ? EmulatedMemory::Access::kWrite : EmulatedMemory::Access::kRead;
  if (pages_.size() < pages_.capacity() && options_.memory->Open(options_.device, page, access)) {
    pages_.push_back({.page = page, .written = write});
    return true;
  }
  if (scratch_.size() == scratch_.capacity() || !options_.memory->OpenScratch(page)) return false;
  scratch_.push_back(page);
  if (illegal_ == nullptr) {
    illegal_ = address;
    illegal_write_ = write;
  }
  return true;
}

void KernelTracer::Begin() {
  pages_.clear();
  scratch_.clear();
  illegal_ = nullptr;
  const stack_t own = {.ss_sp = stack_.data(), .ss_flags = 0, .ss_size = stack_.size()};
  stack_t before = {};
  GANTRY_CHECK_EQ(sigaltstack(&own, &before), 0) << std::strerror(errno);
  std::memcpy(old_stack_.data(), &before, sizeof(before));
  current = this;
}

KernelTracer::Result KernelTracer::End() {
  current = nullptr;
  stack_t before;
  std::memcpy(&before, old_stack_.data(), sizeof(before));
  GANTRY_CHECK_EQ(sigaltstack(&before, nullptr), 0) << std::strerror(errno);

  MutexLock lock(*options_.mutex);
  Result result;
  // A page that was written too is there twice: what was written comes first.
  std::ranges::sort(pages_, [](const Page& a, const Page& b) {
    return std::pair(a.page, !a.written) < std::pair(b.page, !b.written);
  });
  const auto twice = std::ranges::unique(pages_, {}, &Page::page);
  pages_.erase(twice.begin(), twice.end());
  for (const Page& page : pages_) {
    options_.memory->Close(page.page);
    const std::optional<EmulatedMemory::Piece> piece = options_.memory->PieceOf(page.page);
    if (!piece.has_value()) continue;  // unmapped meanwhile, which is noticed there
    Touched* last = result.touched.empty() ? nullptr : &result.touched.back();
    if (last != nullptr && last->written == page.written && last->piece.place == piece->place &&
        last->piece.begin + last->piece.bytes == piece->begin) {
      last->piece.bytes += piece->bytes;
      continue;
    }
    result.touched.push_back({.piece = *piece, .written = page.written});
  }
  for (std::byte* page : scratch_) options_.memory->Close(page);
  if (illegal_ != nullptr) {
    result.illegal = true;
    result.what = StrCat(illegal_write_ ? "writes " : "reads ", options_.memory->Show(illegal_),
                         ", which it may not");
  }
  return result;
}

}  // namespace gantry
