// std::mutex with Clang's thread-safety annotations (absl::Mutex confuses TSan here: Debian's
// library is not instrumented). Annotate each guarded field:
//
//   Mutex mutex_;
//   int64_t free_ GANTRY_GUARDED_BY(mutex_);
#ifndef GANTRY_BASE_MUTEX_H_
#define GANTRY_BASE_MUTEX_H_

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define GANTRY_THREAD_ANNOTATION_(x) __attribute__((x))
#else
#define GANTRY_THREAD_ANNOTATION_(x)
#endif

#define GANTRY_CAPABILITY(x) GANTRY_THREAD_ANNOTATION_(capability(x))
#define GANTRY_SCOPED_CAPABILITY GANTRY_THREAD_ANNOTATION_(scoped_lockable)
#define GANTRY_GUARDED_BY(x) GANTRY_THREAD_ANNOTATION_(guarded_by(x))
#define GANTRY_REQUIRES(...) GANTRY_THREAD_ANNOTATION_(requires_capability(__VA_ARGS__))
#define GANTRY_EXCLUDES(...) GANTRY_THREAD_ANNOTATION_(locks_excluded(__VA_ARGS__))
#define GANTRY_ACQUIRE(...) GANTRY_THREAD_ANNOTATION_(acquire_capability(__VA_ARGS__))
#define GANTRY_RELEASE(...) GANTRY_THREAD_ANNOTATION_(release_capability(__VA_ARGS__))
#define GANTRY_NO_THREAD_SAFETY_ANALYSIS GANTRY_THREAD_ANNOTATION_(no_thread_safety_analysis)

namespace gantry {

class GANTRY_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void Lock() GANTRY_ACQUIRE() { mutex_.lock(); }
  void Unlock() GANTRY_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a Mutex for a scope.
class GANTRY_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) GANTRY_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() GANTRY_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // Releases `mutex`, waits for a notification (or spuriously), and takes it again.
  void Wait(Mutex& mutex) GANTRY_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace gantry

#endif  // GANTRY_BASE_MUTEX_H_
