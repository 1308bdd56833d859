#include "base/testing/fault_plan.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/strings.h"

namespace gantry {

std::string_view Name(FaultPoint point) {
  static constexpr std::array<std::string_view, kFaultPointCount> kNames = {
      "open", "read",      "write", "sync",  "allocation", "rename", "mkdir",   "unlink",
      "slab", "addresses", "map",   "unmap", "copy lane",  "copy",   "backend", "request"};
  return kNames[static_cast<size_t>(point)];
}

std::string_view Name(FaultEffect effect) {
  static constexpr std::array<std::string_view, kFaultEffectCount> kNames = {
      "is healthy",  "fails",   "is short",       "is slow",
      "flips a bit", "is lost", "is misdirected", "truncates its file"};
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
  for (const Fault& fault : faults_) {
    GANTRY_CHECK(fault.first >= 0 && fault.count >= 1) << Describe(fault);
  }
}

FaultPlan::Verdict FaultPlan::Next(FaultPoint point) {
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
  MutexLock lock(mutex_);
  return operations_[static_cast<size_t>(point)];
}

int64_t FaultPlan::struck() const {
  MutexLock lock(mutex_);
  return struck_;
}

}  // namespace gantry
