// What the tests of this package share: completions to wait for, children in which a test can break
// the process, and small file systems mounted for a child only.
#ifndef GANTRY_NVME_TESTING_SUPPORT_H_
#define GANTRY_NVME_TESTING_SUPPORT_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "nvme/io_backend.h"

namespace gantry {

// Keeps completions by tag. A tag that completes twice without a Take between aborts. Thread-safe.
class WaitingSink final : public IoSink {
 public:
  // `run_next`: of a backend on an event loop, lets time go on by one event, false when there is
  // none. Empty: completions come from threads.
  explicit WaitingSink(std::function<bool()> run_next = {}) : run_next_(std::move(run_next)) {}
  void OnIoComplete(uint64_t tag, absl::Status status) override;
  // Blocks until `tag` has completed; forgets it.
  absl::Status Take(uint64_t tag);
  int64_t completions() const;  // since the beginning

 private:
  const std::function<bool()> run_next_;
  mutable Mutex mutex_;
  CondVar completed_;
  int64_t completions_ GANTRY_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, absl::Status> statuses_ GANTRY_GUARDED_BY(mutex_);
};

// Submits and waits. REQUIRES: the sink is the backend's.
absl::Status Transfer(IoBackend& backend, WaitingSink& sink, const IoRequest& request);

// Memory aligned for direct I/O.
class AlignedBlock {
 public:
  explicit AlignedBlock(int64_t size);
  std::span<std::byte> span() const { return {data_.get(), static_cast<size_t>(size_)}; }
  std::span<std::byte> part(int64_t offset, int64_t size) const {
    return span().subspan(static_cast<size_t>(offset), static_cast<size_t>(size));
  }
  // Bytes that depend on `seed` and the position.
  void Fill(uint64_t seed);

 private:
  struct Free {
    void operator()(std::byte* pointer) const { std::free(pointer); }
  };
  int64_t size_;
  std::unique_ptr<std::byte, Free> data_;
};

// A new empty directory below TEST_TMPDIR (or /tmp), removed with its files (one level of
// directories deep) by the destructor.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<std::string> ListDirectory(const std::string& path);  // sorted, without . and ..
int64_t OpenDescriptors();                                        // of this process

// Runs `body` in a forked child. Returns its result (0..255), 1 when a GoogleTest assertion failed
// in it, or 256 plus the signal that ended it.
int RunInChild(const std::function<int()>& body);

// For children. What it needs may be forbidden: then `kCannot` is the way to say so.
inline constexpr int kCannot = 77;

// Makes the system call `number` (SYS_...) fail with `error_number` in this process from now on
// (seccomp).
bool RefuseSystemCall(int number, int error_number);
// Gives up a capability (CAP_IPC_LOCK, ...) in this process from now on.
bool DropCapability(int capability);
// Mounts a file system of `type` at `path` for this process only; "" or why that failed.
struct MountOptions {
  std::string type;
  std::string path;
  std::string data;  // "size=1m"
  bool read_only = false;
};
std::string MountPrivately(const MountOptions& options);

}  // namespace gantry

#endif  // GANTRY_NVME_TESTING_SUPPORT_H_
