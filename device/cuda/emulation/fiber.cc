#include "device/cuda/emulation/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <functional>
#include <utility>

#include "base/check.h"

#if defined(GANTRY_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(GANTRY_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace gantry {
namespace {

namespace context = boost::context::detail;

size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

struct Fiber::Entry {
  static void Main(context::transfer_t from) {
    Fiber* fiber = static_cast<Fiber*>(from.data);
    fiber->outside_ = from.fctx;
    fiber->SwitchIn();
    fiber->Run();
    GANTRY_CHECK(false) << "a fiber that is done was resumed";
  }
};

Fiber::Fiber(size_t stack_bytes, std::function<void()> body) : body_(std::move(body)) {
  const size_t page = PageBytes();
  mapping_bytes_ = (stack_bytes + page - 1) / page * page + page;
  void* mapping = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  GANTRY_CHECK(mapping != MAP_FAILED) << "no memory for a stack of " << mapping_bytes_ << " bytes";
  mapping_ = static_cast<std::byte*>(mapping);
  GANTRY_CHECK_EQ(mprotect(mapping_, page, PROT_NONE), 0);
  inside_ = context::make_fcontext(mapping_ + mapping_bytes_, mapping_bytes_ - page, &Entry::Main);
#if defined(GANTRY_TSAN)
  own_tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(GANTRY_TSAN)
  __tsan_destroy_fiber(own_tsan_fiber_);
#endif
#if defined(GANTRY_ASAN)
  // Frames that were never left are still marked.
  __asan_unpoison_memory_region(mapping_, mapping_bytes_);
#endif
  GANTRY_CHECK_EQ(munmap(mapping_, mapping_bytes_), 0);
}

void Fiber::Resume() {
  GANTRY_CHECK(!done_);
#if defined(GANTRY_TSAN)
  resumer_tsan_fiber_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_tsan_fiber_, 0);
#endif
#if defined(GANTRY_ASAN)
  const size_t page = PageBytes();
  __sanitizer_start_switch_fiber(&resumer_fake_stack_, mapping_ + page, mapping_bytes_ - page);
#endif
  inside_ = context::jump_fcontext(inside_, this).fctx;
#if defined(GANTRY_ASAN)
  __sanitizer_finish_switch_fiber(resumer_fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::Run() {
  body_();
  done_ = true;
  SwitchOut();
}

void Fiber::Suspend() {
  SwitchOut();
  SwitchIn();
}

// After the first instruction back on this stack.
void Fiber::SwitchIn() {
#if defined(GANTRY_ASAN)
  __sanitizer_finish_switch_fiber(own_fake_stack_, &resumer_stack_, &resumer_stack_bytes_);
#endif
}

void Fiber::SwitchOut() {
#if defined(GANTRY_ASAN)
  // A null place says that this stack is not needed again.
  __sanitizer_start_switch_fiber(done_ ? nullptr : &own_fake_stack_, resumer_stack_,
                                 resumer_stack_bytes_);
#endif
#if defined(GANTRY_TSAN)
  __tsan_switch_to_fiber(resumer_tsan_fiber_, 0);
#endif
  outside_ = context::jump_fcontext(outside_, nullptr).fctx;
}

}  // namespace gantry
