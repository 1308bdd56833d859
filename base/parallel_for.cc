#include "base/parallel_for.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/strings.h"

#if defined(GANTRY_TSAN)
#include <deque>
#include <thread>
#include <vector>

#include "base/mutex.h"
#else
#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>
#endif

namespace gantry {
namespace {

constexpr int kThreadsMax = 1024;

void CheckRange(ThreadTeam::Range range) {
  GANTRY_CHECK_GE(range.count, 0);
  GANTRY_CHECK_GE(range.grain, 1);
}

int64_t TaskCount(ThreadTeam::Range range) {
  return range.count / range.grain + (range.count % range.grain != 0 ? 1 : 0);
}

// One call of ThreadTeam::For.
struct Loop {
  ThreadTeam::Range range;
  void* context;
  void (*body)(void* context, int64_t begin, int64_t end);

  // noexcept: a body that throws is a programmer error and ends the process here, on every team.
  void RunTask(int64_t task) const noexcept {
    const int64_t begin = task * range.grain;
    body(context, begin, begin + std::min(range.grain, range.count - begin));
  }
};

class InlineTeam final : public ThreadTeam {
 public:
  InlineTeam() : ThreadTeam(1) {}

 private:
  void ForImpl(Range range, void* context, Trampoline body) override {
    CheckRange(range);
    const Loop loop = {.range = range, .context = context, .body = body};
    for (int64_t task = 0; task < TaskCount(range); ++task) loop.RunTask(task);
  }
};

#if defined(GANTRY_TSAN)

// threads - 1 workers and the callers take task numbers from the queued loops. A caller only runs
// tasks of its own loop, so nested calls end without waiting for a free worker.
class PlainTeam final : public ThreadTeam {
 public:
  explicit PlainTeam(int threads) : ThreadTeam(threads) {}
  // Apart from the constructor, so that the destructor joins what had started when this throws.
  void Start() {
    for (int i = 1; i < threads(); ++i) workers_.emplace_back([this] { Work(); });
  }
  ~PlainTeam() override {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    for (std::thread& worker : workers_) worker.join();
  }

 private:
  struct Job {
    Loop loop;
    int64_t next;
    int64_t unfinished;
  };

  void ForImpl(Range range, void* context, Trampoline body) override {
    CheckRange(range);
    if (range.count == 0) return;
    Job job = {.loop = {.range = range, .context = context, .body = body},
               .next = 0,
               .unfinished = TaskCount(range)};
    MutexLock lock(mutex_);
    jobs_.push_back(&job);
    changed_.NotifyAll();
    while (job.next < TaskCount(range)) RunNext(job);
    while (job.unfinished > 0) changed_.Wait(mutex_);
  }

  // Takes the job's next task, dropping the job from the queue with its last, and runs the task
  // unlocked.
  void RunNext(Job& job) GANTRY_REQUIRES(mutex_) {
    const int64_t task = job.next++;
    if (job.next == TaskCount(job.loop.range)) std::erase(jobs_, &job);
    mutex_.Unlock();
    job.loop.RunTask(task);
    mutex_.Lock();
    if (--job.unfinished == 0) changed_.NotifyAll();
  }

  void Work() {
    MutexLock lock(mutex_);
    while (!stopping_) {
      if (jobs_.empty()) {
        changed_.Wait(mutex_);
      } else {
        RunNext(*jobs_.front());
      }
    }
  }

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ GANTRY_GUARDED_BY(mutex_) = false;
  std::deque<Job*> jobs_ GANTRY_GUARDED_BY(mutex_);  // on their callers' stacks, with tasks left
  std::vector<std::thread> workers_;
};

using MultiThreadTeam = PlainTeam;

#else

class TbbTeam final : public ThreadTeam {
 public:
  explicit TbbTeam(int threads) : ThreadTeam(threads), arena_(threads) {}
  void Start() { arena_.initialize(); }

 private:
  void ForImpl(Range range, void* context, Trampoline body) override {
    CheckRange(range);
    if (range.count == 0) return;
    const Loop loop = {.range = range, .context = context, .body = body};
    const oneapi::tbb::blocked_range<int64_t> tasks(0, TaskCount(range));
    const auto run = [&](const oneapi::tbb::blocked_range<int64_t>& part) {
      for (int64_t task = part.begin(); task != part.end(); ++task) loop.RunTask(task);
    };
    try {
      arena_.execute([&] {
        // Isolated: a body that waits for a nested loop must not be handed another task of the
        // outer one meanwhile (it may hold a lock or use per-thread scratch).
        oneapi::tbb::this_task_arena::isolate(
            [&] { oneapi::tbb::parallel_for(tasks, run, oneapi::tbb::simple_partitioner()); });
      });
    } catch (const std::exception& error) {
      GANTRY_CHECK(false) << "TBB could not run a parallel loop: " << error.what();
    }
  }

  oneapi::tbb::task_arena arena_;
};

using MultiThreadTeam = TbbTeam;

#endif

}  // namespace

absl::StatusOr<std::unique_ptr<ThreadTeam>> ThreadTeam::Create(Options options) {
  if (options.threads < 1 || options.threads > kThreadsMax) {
    return InvalidArgument("a thread team needs 1 to ", kThreadsMax, " threads, not ",
                           options.threads);
  }
  if (options.threads == 1) return std::make_unique<InlineTeam>();
  try {
    auto team = std::make_unique<MultiThreadTeam>(options.threads);
    team->Start();
    return team;
  } catch (const std::exception& error) {
    return ResourceExhausted("cannot start a team of ", options.threads,
                             " threads: ", error.what());
  }
}

}  // namespace gantry
