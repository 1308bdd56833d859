// What will happen at points of virtual time, for runs without threads: simulated devices and disks
// schedule their completions here, and whoever would wait for one runs the next event instead. The
// order of events that are due together, and how much happens while nobody waits, is drawn from a
// seed, so that each seed is one interleaving, which replays.
//
//   VirtualClock clock;
//   EventLoop loop({.clock = &clock, .seed = 7});
//   loop.Schedule(2000, [&] { sink->OnCopyComplete(tag, absl::OkStatus()); });
//   while (!done) GANTRY_CHECK(loop.RunNext());
//
// One thread. An event may schedule events, and may not run the loop.
#ifndef GANTRY_BASE_EVENT_LOOP_H_
#define GANTRY_BASE_EVENT_LOOP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/clock.h"

namespace gantry {

class EventLoop {
 public:
  struct Options {
    VirtualClock* clock;  // outlives the loop
    uint64_t seed;
  };
  explicit EventLoop(const Options& options) : options_(options) {}
  // Events that are left are dropped.
  ~EventLoop() = default;
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // `event` runs when the clock reaches now + `delay`. REQUIRES: delay >= 0.
  void Schedule(Nanoseconds delay, std::function<void()> event);
  // Moves the clock to the next event and runs it. False when there is none.
  bool RunNext();
  // Runs none to three of the next events.
  void RunSome();
  // A random number in [0, bound). REQUIRES: bound >= 1.
  int64_t Draw(int64_t bound);

  int64_t pending() const { return static_cast<int64_t>(events_.size()); }
  int64_t events_run() const { return events_run_; }

 private:
  using Key = std::pair<Nanoseconds, std::pair<uint64_t, int64_t>>;  // due, random, number

  Options options_;
  int64_t scheduled_ = 0;
  int64_t draws_ = 0;
  int64_t events_run_ = 0;
  bool running_ = false;
  std::map<Key, std::function<void()>> events_;
};

}  // namespace gantry

#endif  // GANTRY_BASE_EVENT_LOOP_H_
