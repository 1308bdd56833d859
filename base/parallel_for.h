// A fixed team of compute threads over TBB (plain threads in TSan builds, where TBB's templates
// raise false reports). The only place in the project that touches TBB.
//
//   auto team = ThreadTeam::Create({.threads = 2});
//   team->For({.count = rows, .grain = 16}, [&](int64_t begin, int64_t end) { ... });
//
// Thread-safe: several threads may call For at once; they share the team's threads.
#ifndef GANTRY_BASE_PARALLEL_FOR_H_
#define GANTRY_BASE_PARALLEL_FOR_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace gantry {

class ThreadTeam {
 public:
  struct Options {
    int threads;  // the caller included; at least 1; 1 runs everything inline
  };
  struct Range {
    int64_t count;  // indices 0 .. count-1
    int64_t grain;  // indices per task, at least 1; the last task may be shorter
  };

  // Errors: kInvalidArgument for fewer than 1 or more than 1024 threads.
  static absl::StatusOr<std::unique_ptr<ThreadTeam>> Create(Options options);
  virtual ~ThreadTeam() = default;

  int threads() const { return threads_; }

  // Calls body(begin, end) for consecutive ranges of exactly `grain` indices (the last may be
  // shorter) in any order and on any thread of the team, and returns when all are done. The split
  // depends on count and grain only, never on the number of threads, so a body whose result
  // depends only on its range gives the same bits for any team. Calls nest: while a body waits for
  // a loop of its own, its thread runs bodies of that loop only.
  // REQUIRES: `body` does not throw.
  template <typename Body>
  void For(Range range, Body&& body) {
    auto* pointer = std::addressof(body);  // itself passed by address: the body may be const
    ForImpl(range, static_cast<void*>(&pointer), [](void* context, int64_t begin, int64_t end) {
      (**static_cast<decltype(pointer)*>(context))(begin, end);
    });
  }

 protected:
  using Trampoline = void (*)(void* context, int64_t begin, int64_t end);
  explicit ThreadTeam(int threads) : threads_(threads) {}

 private:
  virtual void ForImpl(Range range, void* context, Trampoline body) = 0;

  int threads_;
};

}  // namespace gantry

#endif  // GANTRY_BASE_PARALLEL_FOR_H_
