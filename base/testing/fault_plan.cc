#include "base/testing/fault_plan.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr int64_t kPage = 4096;  // of direct I/O
// A misdirected write lands this far off, or a small multiple of it: on another block, where blocks
// have the least size.
constexpr int64_t kShift = int64_t{64} * 1024;

bool IsFileCall(FaultPoint point) { return static_cast<int>(point) < kFileCallKindCount; }

bool IsPossible(const Fault& fault) {
  const bool transfer = fault.point == FaultPoint::kRead || fault.point == FaultPoint::kWrite;
  switch (fault.effect) {
    case FaultEffect::kNone:
    case FaultEffect::kFail:
      return true;
    case FaultEffect::kShort:
      return transfer || fault.point == FaultPoint::kCopy;
    case FaultEffect::kSlow:
      return fault.point == FaultPoint::kCopy || fault.point == FaultPoint::kRequest;
    case FaultEffect::kFlipBit:
    case FaultEffect::kTruncate:
      return transfer;
    case FaultEffect::kLoseWrite:
    case FaultEffect::kMisdirect:
      return fault.point == FaultPoint::kWrite;
    case FaultEffect::kVanish:
      return fault.point == FaultPoint::kBackend;
  }
  return false;
}

FileFault FileFaultOf(const Fault& fault) {
  const auto salt = static_cast<int64_t>(fault.salt);
  switch (fault.effect) {
    case FaultEffect::kShort:
      return ShortenCall{.bytes = salt % 16 * kPage};
    case FaultEffect::kFlipBit:
      return FlipBit{.bit = salt};
    case FaultEffect::kLoseWrite:
      return LoseWrite{};
    case FaultEffect::kMisdirect:
      return MisplaceWrite{.shift = (1 + salt % 4) * kShift};
    case FaultEffect::kTruncate:
      return TruncateFile{.bytes = salt % 32 * kShift};
    case FaultEffect::kNone:
    case FaultEffect::kFail:
    case FaultEffect::kSlow:
    case FaultEffect::kVanish:
      break;
  }
  return FailCall{fault.error_number};
}

}  // namespace

std::string_view Name(FaultPoint point) {
  static constexpr std::array<std::string_view, kFaultPointCount> kNames = {
      "open", "read",      "write", "sync",  "allocation", "rename", "mkdir",   "unlink",
      "slab", "addresses", "map",   "unmap", "copy lane",  "copy",   "backend", "request"};
  return kNames[static_cast<size_t>(point)];
}

std::string_view Name(FaultEffect effect) {
  static constexpr std::array<std::string_view, kFaultEffectCount> kNames = {
      "is healthy", "fails",          "is short",           "is slow", "flips a bit",
      "is lost",    "is misdirected", "truncates its file", "vanishes"};
  return kNames[static_cast<size_t>(effect)];
}

std::string Describe(const Fault& fault) {
  std::string text = StrCat(Name(fault.point), " ", fault.first);
  if (fault.count > 1) text += StrCat(" to ", fault.first + fault.count - 1);
  text += StrCat(" ", Name(fault.effect));
  if (fault.effect == FaultEffect::kFail) {
    const char* name = strerrorname_np(fault.error_number);
    text += StrCat(" with ", name != nullptr ? name : StrCat("errno ", fault.error_number).c_str());
  } else if (fault.salt != 0) {
    text += StrCat(" (salt ", fault.salt, ")");
  }
  return text;
}

FaultPlan::FaultPlan(std::vector<Fault> faults) : faults_(std::move(faults)) {
  // Of several faults for one call the last one counts there, and the first one here.
  for (auto fault = faults_.rbegin(); fault != faults_.rend(); ++fault) {
    GANTRY_CHECK(fault->first >= 0 && fault->count >= 1 && IsPossible(*fault)) << Describe(*fault);
    if (!IsFileCall(fault->point) || fault->effect == FaultEffect::kNone) continue;
    files_.Inject({.kind = static_cast<FileCallKind>(fault->point),
                   .first = fault->first,
                   .count = fault->count},
                  FileFaultOf(*fault));
  }
}

FaultPlan::Verdict FaultPlan::Next(FaultPoint point) {
  GANTRY_CHECK(!IsFileCall(point)) << "file calls go through files()";
  MutexLock lock(mutex_);
  const int64_t number = operations_[static_cast<size_t>(point)]++;
  for (const Fault& fault : faults_) {
    const int64_t index = number - fault.first;
    if (fault.point != point || index < 0 || index >= fault.count) continue;
    if (fault.effect == FaultEffect::kNone) break;
    ++struck_;
    return {.effect = fault.effect,
            .error_number = fault.error_number,
            .salt = fault.salt + static_cast<uint64_t>(index)};
  }
  return {};
}

int64_t FaultPlan::operations(FaultPoint point) const {
  if (IsFileCall(point)) return files_.calls(static_cast<FileCallKind>(point));
  MutexLock lock(mutex_);
  return operations_[static_cast<size_t>(point)];
}

int64_t FaultPlan::struck() const {
  MutexLock lock(mutex_);
  return struck_ + files_.faults();
}

}  // namespace gantry
