#include "device/fake/fake_copy_lane.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;
// How many times longer a slow copy takes.
constexpr int64_t kSlowness = 50;

std::string_view Name(CopyDirection direction) {
  return direction == CopyDirection::kHostToDevice ? "host to device" : "device to host";
}

}  // namespace

FakeCopyLane::FakeCopyLane(const Options& options) : options_(options) {
  GANTRY_CHECK(options.loop != nullptr && options.clock != nullptr && options.faults != nullptr &&
               options.sink != nullptr);
  GANTRY_CHECK_GE(options.bandwidth_bytes_per_second, 0);
  GANTRY_CHECK_GE(options.latency, 0);
}

void FakeCopyLane::Finish() {
  while (!queue_.empty()) GANTRY_CHECK(options_.loop->RunNext()) << "a copy has no event";
}

void FakeCopyLane::Submit(const CopyRequest& request) {
  GANTRY_CHECK_GE(request.bytes.count(), 0);
  Entry entry{.request = request,
              .verdict = options_.faults->Next(FaultPoint::kCopy),
              .submitted = options_.clock->Now(),
              .due = 0};
  Nanoseconds duration = options_.latency;
  if (options_.bandwidth_bytes_per_second > 0) {
    duration +=
        static_cast<Nanoseconds>(static_cast<__int128>(request.bytes.count()) *
                                 kNanosecondsPerSecond / options_.bandwidth_bytes_per_second);
  }
  if (entry.verdict.effect == FaultEffect::kSlow) duration *= kSlowness;
  const Nanoseconds begin = std::max(entry.submitted, due_);
  due_ = entry.due = begin + duration;
  counters_.busy_nanoseconds += duration;
  queue_.push_back(entry);
  // One event at a time: those that are due together would run in any order.
  if (queue_.size() == 1) ScheduleFirst();
}

void FakeCopyLane::ScheduleFirst() {
  const Nanoseconds delay = std::max<Nanoseconds>(queue_.front().due - options_.clock->Now(), 0);
  options_.loop->Schedule(delay, [this] { FinishFirst(); });
}

void FakeCopyLane::FinishFirst() {
  const Entry entry = queue_.front();
  absl::Status status = Copy(entry);
  queue_.pop_front();
  ++counters_.requests;
  if (status.ok()) counters_.bytes += entry.request.bytes.count();
  if (!queue_.empty()) ScheduleFirst();
  options_.sink->OnCopyComplete(entry.request.tag, std::move(status));
}

absl::Status FakeCopyLane::Copy(const Entry& entry) const {
  const FaultEffect effect = entry.verdict.effect;
  GANTRY_CHECK(effect == FaultEffect::kNone || effect == FaultEffect::kSlow ||
               effect == FaultEffect::kFail || effect == FaultEffect::kShort)
      << "a copy that " << gantry::Name(effect);
  const bool fails = effect == FaultEffect::kFail || effect == FaultEffect::kShort;
  const int64_t wanted = entry.request.bytes.count();
  const int64_t moved = effect == FaultEffect::kFail    ? 0
                        : effect == FaultEffect::kShort ? wanted / 2
                                                        : wanted;
  if (moved > 0) {
    std::memcpy(entry.request.destination, entry.request.source, static_cast<size_t>(moved));
  }
  if (!fails) return absl::OkStatus();
  return ErrnoStatus(entry.verdict.error_number,
                     StrCat("injected: copy of ", entry.request.bytes, " from ",
                            Name(options_.direction), " stopped after ", Bytes(moved)));
}

}  // namespace gantry
