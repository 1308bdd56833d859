#include "placement_policy/report/report_trace.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/json_document.h"
#include "base/strings.h"
#include "placement_policy/report/lane_text.h"
#include "placement_policy/report/step_report.h"
#include "placement_policy/report/step_timeline.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

constexpr int64_t kComputeTrack = 1;
constexpr int64_t kWaitTrack = 2;
constexpr int64_t kRowsMax = 1000;  // tracks of a lane; more rows share the last

// The format counts in microseconds; three decimals keep the nanoseconds.
std::string Microseconds(Nanoseconds time) {
  const std::string fraction = std::to_string(1000 + time % 1000).substr(1);
  return std::to_string(time / 1000) + "." + fraction;
}

std::string_view PhaseText(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kOptimizer:
      return "optimizer";
  }
  return "?";
}

int64_t TrackOf(const TimelineMove& move) {
  return kRowsMax * (static_cast<int64_t>(move.lane) + 1) +
         std::min<int64_t>(move.row, kRowsMax - 1);
}

class Writer {
 public:
  void AddStep(int64_t process, std::string_view title, const StepTimeline& timeline,
               const std::vector<std::string>& chunk_names) {
    process_ = process;
    timeline_ = &timeline;
    chunk_names_ = &chunk_names;
    Meta("process_name", 0, StrCat("\"name\":", JsonQuoted(title)));
    Meta("process_sort_index", 0, StrCat("\"sort_index\":", process));
    NameTracks();
    for (const TimelineOperator& op : timeline.operators) AddOperator(op);
    for (const TimelineWait& wait : timeline.waits) {
      Slice(kWaitTrack, StrCat("waits ", Text(wait.cause)), wait.begin, wait.end, "");
    }
    for (const TimelineMove& move : timeline.moves) AddMove(move);
    for (const TierCurve& tier : timeline.tiers) AddTier(tier);
  }

  std::string Finish() && { return std::move(out_) + "\n]}\n"; }

 private:
  void Begin(std::string_view phase) {
    out_ += first_ ? "\n" : ",\n";
    first_ = false;
    out_ += StrCat("{\"ph\":\"", phase, "\",\"pid\":", process_);
  }

  void Meta(std::string_view what, int64_t track, const std::string& arguments) {
    Begin("M");
    out_ += StrCat(",\"tid\":", track, ",\"name\":\"", what, "\",\"args\":{", arguments, "}}");
  }

  void NameTrack(int64_t track, std::string_view name) {
    Meta("thread_name", track, StrCat("\"name\":", JsonQuoted(name)));
    Meta("thread_sort_index", track, StrCat("\"sort_index\":", track));
  }

  void NameTracks() {
    NameTrack(kComputeTrack, "computing");
    NameTrack(kWaitTrack, "waiting");
    std::set<std::pair<int64_t, std::string>> tracks;
    for (const TimelineMove& move : timeline_->moves) {
      std::string name(Text(move.lane));
      if (move.row > 0) name += StrCat(" ", std::min<int64_t>(move.row, kRowsMax - 1) + 1);
      tracks.emplace(TrackOf(move), std::move(name));
    }
    for (const auto& [track, name] : tracks) NameTrack(track, name);
  }

  void Slice(int64_t track, const std::string& name, Nanoseconds begin, Nanoseconds end,
             const std::string& arguments) {
    const Nanoseconds from = std::max<Nanoseconds>(begin, 0);
    Begin("X");
    out_ += StrCat(",\"tid\":", track, ",\"ts\":", Microseconds(from),
                   ",\"dur\":", Microseconds(std::max(end, from) - from),
                   ",\"name\":", JsonQuoted(name), ",\"args\":{", arguments, "}}");
  }

  const std::string& NameOf(const TimelineOperator& op) const {
    return timeline_->names[static_cast<size_t>(op.name)];
  }

  void AddOperator(const TimelineOperator& op) {
    Slice(kComputeTrack, NameOf(op), op.begin, op.end,
          StrCat("\"phase\":\"", PhaseText(op.phase), "\",\"layer\":", op.layer,
                 ",\"micro_batch\":", op.micro_batch));
  }

  void AddMove(const TimelineMove& move) {
    std::string name = move.count > 1 ? StrCat(move.count, " moves") : std::string("block");
    std::string arguments =
        StrCat("\"bytes\":", move.bytes, ",\"why\":", JsonQuoted(Text(move.reason)));
    if (move.subject >= 0) {
      const MoveSubject& subject = timeline_->subjects[static_cast<size_t>(move.subject)];
      name = subject.what;
      if (subject.chunk >= 0) name += StrCat(" of chunk ", subject.chunk);
      const auto chunk = static_cast<size_t>(subject.chunk);
      if (subject.chunk >= 0 && chunk < chunk_names_->size() && !(*chunk_names_)[chunk].empty()) {
        arguments += StrCat(",\"tensors\":", JsonQuoted((*chunk_names_)[chunk]));
      }
    }
    if (move.serves >= 0) {
      const TimelineOperator& op = timeline_->operators[static_cast<size_t>(move.serves)];
      arguments += StrCat(",\"operator\":", JsonQuoted(NameOf(op)), ",\"layer\":", op.layer,
                          ",\"steps_on\":", move.serves_step);
    }
    Slice(TrackOf(move), name, move.begin, move.end, arguments);
  }

  void AddTier(const TierCurve& tier) {
    for (const TierPoint& point : tier.points) {
      Begin("C");
      out_ += StrCat(",\"ts\":", Microseconds(std::max<Nanoseconds>(point.time, 0)),
                     ",\"name\":", JsonQuoted(tier.name + " bytes"), ",\"args\":{");
      for (int kind = 0; kind < kByteKindCount; ++kind) {
        const int64_t slots = point.slots[static_cast<size_t>(kind)];
        out_ += StrCat(kind == 0 ? "" : ",", "\"", Name(static_cast<ByteKind>(kind)),
                       "\":", slots * timeline_->slot_bytes.count());
      }
      out_ += "}}";
    }
  }

  std::string out_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  bool first_ = true;
  int64_t process_ = 0;
  const StepTimeline* timeline_ = nullptr;
  const std::vector<std::string>* chunk_names_ = nullptr;
};

}  // namespace

std::string ReportTrace(const StepReport& report) {
  Writer writer;
  if (report.simulated_timeline) {
    writer.AddStep(1, "simulated step", *report.simulated_timeline, report.chunk_names);
  }
  if (report.measured_timeline) {
    writer.AddStep(2, "measured step", *report.measured_timeline, report.chunk_names);
  }
  return std::move(writer).Finish();
}

}  // namespace gantry
