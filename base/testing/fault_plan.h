// The one place where a test says what goes wrong in a run: everything that can fail (file calls,
// slabs, mappings, copies, I/O requests) shares one FaultPlan. File calls go through files(); the
// rest asks Next before each operation. The plan counts operations by kind and strikes the n-th.
//
//   FaultPlan counting({});                       // nothing fails; how many operations are there?
//   Run(&counting);
//   for (int64_t n = 0; n < counting.operations(FaultPoint::kMap); ++n) {
//     FaultPlan plan({{.point = FaultPoint::kMap, .first = n, .effect = FaultEffect::kFail}});
//     Run(&plan);                                 // plan.struck() says whether it got that far
//   }
//
// Thread-safe.
#ifndef GANTRY_BASE_TESTING_FAULT_PLAN_H_
#define GANTRY_BASE_TESTING_FAULT_PLAN_H_

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_calls.h"
#include "base/mutex.h"
#include "base/testing/faulty_file_calls.h"

namespace gantry {

// What can fail. Each is counted by itself, from 0.
enum class FaultPoint : uint8_t {
  // FileCalls, in the order of FileCallKind
  kOpen,
  kRead,
  kWrite,
  kSync,
  kAllocate,
  kRename,
  kMakeDirectory,
  kUnlink,
  // Device
  kSlab,       // CreateSlab
  kAddresses,  // ReserveAddressSpace
  kMap,        // AddressSpace::Map
  kUnmap,
  kCopyLane,  // CreateCopyLane
  kCopy,      // one request of a lane
  // IoBackend
  kBackend,  // making one
  kRequest,  // one request of a backend, as a whole
};
inline constexpr int kFaultPointCount = 16;
std::string_view Name(FaultPoint point);  // "open", "copy lane", ...

enum class FaultEffect : uint8_t {
  kNone,
  kFail,   // nothing happens; the error is reported
  kShort,  // a transfer moves less than asked for
  kSlow,   // right, but late
  // Lies: success is reported.
  kFlipBit,    // one bit of what was read or written is wrong
  kLoseWrite,  // nothing was written
  kMisdirect,  // it was written somewhere else in the file
  kTruncate,   // the file is cut short, then the call goes on
  // A backend is there at first and gone after some requests: they all fail from then on.
  kVanish,
};
inline constexpr int kFaultEffectCount = 9;
std::string_view Name(FaultEffect effect);  // "fails", "is short", ...

struct Fault {
  FaultPoint point;
  int64_t first = 0;  // the operation that is struck, counted from 0
  int64_t count = 1;  // so many operations in a row
  FaultEffect effect = FaultEffect::kFail;
  int error_number = EIO;  // of kFail
  // Chooses the bit, the length and the like.
  uint64_t salt = 0;
};
// "read 3 to 5 is short", "write 7 fails with ENOSPC": what replays the case.
std::string Describe(const Fault& fault);

class FaultPlan {
 public:
  // What one operation is to suffer; kNone in the normal case.
  struct Verdict {
    FaultEffect effect = FaultEffect::kNone;
    int error_number = 0;
    uint64_t salt = 0;  // differs between the operations of one fault
  };

  // Where faults overlap, the first in the list decides. REQUIRES: counts at least 1; file calls
  // are not slow, only reads and writes lie, only transfers are short, only backends vanish.
  explicit FaultPlan(std::vector<Fault> faults);

  // The file system, with the faults of file calls.
  FileCalls* files() { return &files_; }
  // Counts an operation of this kind, which is about to happen. REQUIRES: it is no file call.
  Verdict Next(FaultPoint point) GANTRY_EXCLUDES(mutex_);

  int64_t operations(FaultPoint point) const GANTRY_EXCLUDES(mutex_);
  // Operations that met a fault.
  int64_t struck() const GANTRY_EXCLUDES(mutex_);

 private:
  const std::vector<Fault> faults_;
  PosixFileCalls posix_;
  FaultyFileCalls files_{&posix_};
  mutable Mutex mutex_;
  std::array<int64_t, kFaultPointCount> operations_ GANTRY_GUARDED_BY(mutex_){};
  int64_t struck_ GANTRY_GUARDED_BY(mutex_) = 0;
};

}  // namespace gantry

#endif  // GANTRY_BASE_TESTING_FAULT_PLAN_H_
