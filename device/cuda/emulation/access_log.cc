#include "device/cuda/emulation/access_log.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

namespace gantry {
namespace {

bool IsBefore(const WorkOrder& first, const WorkOrder& second) {
  return second.clock.at(first.actor) >= first.tick;
}

}  // namespace

uint64_t VectorClock::Tick(size_t actor) {
  if (ticks_.size() <= actor) ticks_.resize(actor + 1);
  return ++ticks_[actor];
}

void VectorClock::Join(const VectorClock& other) {
  if (ticks_.size() < other.ticks_.size()) ticks_.resize(other.ticks_.size());
  for (size_t i = 0; i < other.ticks_.size(); ++i) {
    ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
  }
}

std::shared_ptr<const WorkOrder> AccessLog::Add(const MemoryAccess& access) {
  std::vector<Entry>& entries = accesses_[access.object];
  std::shared_ptr<const WorkOrder> conflict;
  for (const Entry& entry : entries) {
    const MemoryAccess& other = entry.access;
    if (other.begin >= access.end || access.begin >= other.end) continue;
    if (!other.write && !access.write) continue;
    if (other.work == access.work) continue;
    if (IsBefore(*other.work, *access.work) || IsBefore(*access.work, *other.work)) continue;
    conflict = other.work;
    break;
  }
  entries.push_back({.access = access});
  return conflict;
}

std::shared_ptr<const WorkOrder> AccessLog::Unfinished(int64_t place,
                                                       const VectorClock& host) const {
  for (const auto& [object, entries] : accesses_) {
    for (const Entry& entry : entries) {
      if (entry.access.place != place) continue;
      const WorkOrder& work = *entry.access.work;
      if (host.at(work.actor) < work.tick) return entry.access.work;
    }
  }
  return nullptr;
}

void AccessLog::Sweep(const VectorClock& host, uint64_t next, uint64_t oldest_open) {
  for (auto object = accesses_.begin(); object != accesses_.end();) {
    std::vector<Entry>& entries = object->second;
    for (Entry& entry : entries) {
      const WorkOrder& work = *entry.access.work;
      if (entry.known_before == 0 && host.at(work.actor) >= work.tick) entry.known_before = next;
    }
    std::erase_if(entries, [&](const Entry& entry) {
      return entry.known_before != 0 && entry.known_before <= oldest_open;
    });
    object = entries.empty() ? accesses_.erase(object) : std::next(object);
  }
}

int64_t AccessLog::size() const {
  int64_t count = 0;
  for (const auto& [object, entries] : accesses_) count += static_cast<int64_t>(entries.size());
  return count;
}

}  // namespace gantry
