#include "base/event_loop.h"

#include "base/check.h"
#include "base/random.h"

namespace gantry {
namespace {

// Streams of the seed's random numbers.
constexpr uint64_t kOrderStream = 1;
constexpr uint64_t kDrawStream = 2;
// RunSome runs fewer than this many events.
constexpr int64_t kSomeBound = 4;

}  // namespace

void EventLoop::Schedule(Nanoseconds delay, std::function<void()> event) {
  GANTRY_CHECK_GE(delay, 0);
  const int64_t number = scheduled_++;
  const Random order({.seed = options_.seed, .stream = kOrderStream});
  const Key key{options_.clock->Now() + delay, {order.Bits(static_cast<uint64_t>(number)), number}};
  events_.emplace(key, std::move(event));
}

bool EventLoop::RunNext() {
  GANTRY_CHECK(!running_) << "an event runs the loop";
  if (events_.empty()) return false;
  auto next = events_.extract(events_.begin());
  options_.clock->SleepUntil(next.key().first);
  running_ = true;
  next.mapped()();
  running_ = false;
  ++events_run_;
  return true;
}

int64_t EventLoop::Draw(int64_t bound) {
  const Random random({.seed = options_.seed, .stream = kDrawStream});
  return random.Below(bound, static_cast<uint64_t>(draws_++));
}

void EventLoop::RunSome() {
  const int64_t count = Draw(kSomeBound);
  for (int64_t i = 0; i < count; ++i) {
    if (!RunNext()) return;
  }
}

}  // namespace gantry
