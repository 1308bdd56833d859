// Faults of the file system on demand: decorates FileCalls, counts what is called, and makes chosen
// calls fail, move less than asked for, or lie.
//
//   PosixFileCalls posix;
//   FaultyFileCalls files(&posix);
//   files.Inject({.kind = FileCallKind::kSync, .first = 0}, FailCall{EIO});
//   files.Inject({.kind = FileCallKind::kWrite, .first = 3}, FlipBit{.bit = 12});
//   ... use it ...
//   EXPECT_EQ(files.faults(), 2);                               // both were met
#ifndef GANTRY_BASE_TESTING_FAULTY_FILE_CALLS_H_
#define GANTRY_BASE_TESTING_FAULTY_FILE_CALLS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/file_calls.h"
#include "base/mutex.h"

namespace gantry {

enum class FileCallKind : uint8_t {
  kOpen,
  kRead,
  kWrite,
  kSync,
  kAllocate,
  kRename,
  kMakeDirectory,
  kUnlink,
};
inline constexpr int kFileCallKindCount = 8;
std::ostream& operator<<(std::ostream& out, FileCallKind kind);  // "open", "read", ...

// ---- What can go wrong

// Any call: nothing is done, and -error_number returned.
struct FailCall {
  int error_number;
};
// Reads and writes: at most `bytes` of the buffer are moved, and the call says how many. With 0
// nothing is called.
struct ShortenCall {
  int64_t bytes;
};
// Writes: nothing is written, and all is said to be.
struct LoseWrite {};
// Writes: all is written `shift` bytes from where it should be. REQUIRES: not before the start of
// the file.
struct MisplaceWrite {
  int64_t shift;
};
// Reads and writes: one bit is wrong, in the file or in what was read. `bit` counts modulo the bits
// moved (a write: asked to move). The caller's buffer of a write is not changed.
struct FlipBit {
  int64_t bit;
};
// Reads and writes: the file is cut to this size where it is longer, then the call goes on.
struct TruncateFile {
  int64_t bytes;
};
using FileFault =
    std::variant<FailCall, ShortenCall, LoseWrite, MisplaceWrite, FlipBit, TruncateFile>;

// Calls number `first` .. `first + count - 1` of one kind, or of all kinds together. Numbers count
// from 0 since the object was made.
struct FaultyCalls {
  static constexpr int64_t kForEver = std::numeric_limits<int64_t>::max();

  std::optional<FileCallKind> kind;
  int64_t first;
  int64_t count = 1;
};

// Thread-safe. Calls block as those of `inner`, outside any lock.
class FaultyFileCalls final : public FileCalls {
 public:
  // `inner` outlives the object.
  explicit FaultyFileCalls(FileCalls* inner) : inner_(inner) {}

  // Of several faults for one call the one injected last counts. REQUIRES: `fault` is possible for
  // the kind; only FailCall is for all kinds together.
  void Inject(const FaultyCalls& calls, const FileFault& fault) GANTRY_EXCLUDES(mutex_);
  // Forgets all faults; the numbers go on.
  void Clear() GANTRY_EXCLUDES(mutex_);

  // Calls so far, faulty ones included.
  int64_t calls() const GANTRY_EXCLUDES(mutex_);
  int64_t calls(FileCallKind kind) const GANTRY_EXCLUDES(mutex_);
  // Calls that met a fault.
  int64_t faults() const GANTRY_EXCLUDES(mutex_);

  int Open(int directory, const std::string& path, int flags, int mode) override;
  int64_t ReadAt(int fd, std::span<std::byte> buffer, int64_t offset) override;
  int64_t WriteAt(int fd, std::span<const std::byte> buffer, int64_t offset) override;
  int Sync(int fd, SyncKind kind) override;
  int Allocate(int fd, int64_t offset, int64_t bytes) override;
  int Rename(int from_directory, const std::string& from, int to_directory,
             const std::string& to) override;
  int MakeDirectory(int directory, const std::string& path, int mode) override;
  int Unlink(int directory, const std::string& path, int flags) override;

 private:
  struct Injected {
    FaultyCalls calls;
    FileFault fault;
  };
  // Counts a call; its fault, if it has one.
  std::optional<FileFault> Count(FileCallKind kind) GANTRY_EXCLUDES(mutex_);
  // The same for kinds that can only fail: the errno, or 0.
  int CountError(FileCallKind kind) GANTRY_EXCLUDES(mutex_);

  FileCalls* const inner_;
  mutable Mutex mutex_;
  std::array<int64_t, kFileCallKindCount> calls_ GANTRY_GUARDED_BY(mutex_) = {};
  int64_t faults_ GANTRY_GUARDED_BY(mutex_) = 0;
  std::vector<Injected> injected_ GANTRY_GUARDED_BY(mutex_);
};

}  // namespace gantry

#endif  // GANTRY_BASE_TESTING_FAULTY_FILE_CALLS_H_
