// Timeline events (what ran on which lane, and counters per tier), for the Perfetto viewer.
// Chrome JSON trace format, one track per lane: https://ui.perfetto.dev opens the file.
#ifndef GANTRY_BASE_TRACE_SINK_H_
#define GANTRY_BASE_TRACE_SINK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/mutex.h"

namespace gantry {

// Thread-safe. A null TraceSink* means "off" everywhere; callers test before they format.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  // One slice [begin, end) on `track`. The names are copied. REQUIRES: begin <= end.
  virtual void Slice(std::string_view track, std::string_view name, Nanoseconds begin,
                     Nanoseconds end) = 0;
  virtual void Counter(std::string_view name, Nanoseconds time, int64_t value) = 0;
};

// Collects events in memory (up to a fixed number; later ones are counted as dropped) and writes
// them as Chrome JSON.
class JsonTraceSink final : public TraceSink {
 public:
  explicit JsonTraceSink(int64_t events_max) : events_max_(events_max) {}
  void Slice(std::string_view track, std::string_view name, Nanoseconds begin,
             Nanoseconds end) override;
  void Counter(std::string_view name, Nanoseconds time, int64_t value) override;

  int64_t dropped() const;
  // Writes the file, whole or not at all. Errors: as WriteFileAtomically (base/files.h).
  absl::Status Write(FileCalls& files, const std::string& path) const;

 private:
  enum class EventKind { kSlice, kCounter };
  struct Event {
    EventKind kind;
    std::string track;  // unused for a counter
    std::string name;
    Nanoseconds begin;
    Nanoseconds end_or_value;
  };
  void Add(Event event);

  mutable Mutex mutex_;
  const int64_t events_max_;
  int64_t dropped_ GANTRY_GUARDED_BY(mutex_) = 0;
  std::vector<Event> events_ GANTRY_GUARDED_BY(mutex_);
};

}  // namespace gantry

#endif  // GANTRY_BASE_TRACE_SINK_H_
