// Keeps what the engine tells its trace sink of the last steps of a run, so that one of them can be
// looked at when the run ends, however long it was.
//
// Thread-safe.
#ifndef GANTRY_TRAINER_BOOSTER_STEP_RECORDER_H_
#define GANTRY_TRAINER_BOOSTER_STEP_RECORDER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/trace_sink.h"

namespace gantry {

struct RecordedSlice {
  std::string track;
  std::string name;
  Nanoseconds begin;
  Nanoseconds end;
};

struct RecordedCounter {
  std::string name;
  Nanoseconds time;
  int64_t value;
};

// Times are the clock's.
struct RecordedStep {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  std::vector<RecordedSlice> slices = {};  // that overlap the step, in order of their ends
  std::vector<RecordedCounter> counters =
      {};               // up to the step's end; the first ones are from before it
  int64_t dropped = 0;  // events that there was no room for
};

class StepRecorder final : public TraceSink {
 public:
  // `next` gets everything too; null: nobody. It outlives the recorder. Keeps at most so many
  // events of a step.
  StepRecorder(TraceSink* next, int64_t events_max) : next_(next), events_max_(events_max) {}

  void Slice(std::string_view track, std::string_view name, Nanoseconds begin,
             Nanoseconds end) override;
  void Counter(std::string_view name, Nanoseconds time, int64_t value) override;
  // A step ran from `begin` to `end`, which is now.
  void EndStep(Nanoseconds begin, Nanoseconds end);

  // The last step but one, of which all is known that was under way at its end; the last one when
  // there was one only; nothing when none ended.
  std::optional<RecordedStep> Step() const;

 private:
  struct Part {  // what was told between two ends of steps
    RecordedStep step;
    int64_t events = 0;
  };
  bool HasRoom() GANTRY_REQUIRES(mutex_);

  TraceSink* const next_;
  const int64_t events_max_;
  mutable Mutex mutex_;
  std::map<std::string, int64_t, std::less<>> levels_ GANTRY_GUARDED_BY(mutex_);
  Part current_ GANTRY_GUARDED_BY(mutex_);
  std::optional<RecordedStep> last_ GANTRY_GUARDED_BY(mutex_);
  std::optional<RecordedStep> last_but_one_ GANTRY_GUARDED_BY(mutex_);
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_STEP_RECORDER_H_
