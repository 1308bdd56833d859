#include "placement_policy/report/report_json.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/json_document.h"
#include "placement_policy/report/lane_text.h"
#include "placement_policy/report/step_report.h"
#include "placement_policy/report/step_timeline.h"
#include "placement_policy/simulator.h"

namespace gantry {
namespace {

// Names of chunks beyond this are left out.
constexpr size_t kChunkNameBytesMax = 400'000;
constexpr size_t kNameBytesMax = 400'000;

// Numbers separated by commas, in brackets.
class NumberList {
 public:
  void Add(std::initializer_list<int64_t> numbers) {
    for (const int64_t number : numbers) {
      std::array<char, 24> digits{};
      const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
      if (text_.size() > 1) text_ += ',';
      text_.append(digits.data(), end);
    }
  }
  std::string Finish() && { return std::move(text_) + "]"; }

 private:
  std::string text_ = "[";
};

template <typename Enum, int kCount, typename ToText>
std::string NamesOf(ToText to_text) {
  std::string list = "[";
  for (int i = 0; i < kCount; ++i) {
    if (i > 0) list += ',';
    list += JsonQuoted(to_text(static_cast<Enum>(i)));
  }
  return list + "]";
}

std::string Strings(const std::vector<std::string>& texts, size_t bytes_max) {
  std::string list = "[";
  for (const std::string& text : texts) {
    if (list.size() > 1) list += ',';
    list += list.size() < bytes_max ? JsonQuoted(text) : std::string("\"\"");
  }
  return list + "]";
}

void AppendMember(std::string_view key, const std::string& value, std::string& out) {
  if (out.back() != '{') out += ',';
  out += '"';
  out += key;
  out += "\":";
  out += value;
}

std::string OperatorsJson(const StepTimeline& timeline) {
  NumberList list;
  Nanoseconds before = 0;
  for (const TimelineOperator& op : timeline.operators) {
    list.Add({op.begin - before, op.end - op.begin, op.name, static_cast<int64_t>(op.phase),
              op.micro_batch, op.layer, op.count});
    before = op.begin;
  }
  return std::move(list).Finish();
}

std::string WaitsJson(const StepTimeline& timeline) {
  NumberList list;
  Nanoseconds before = 0;
  for (const TimelineWait& wait : timeline.waits) {
    list.Add({wait.begin - before, wait.end - wait.begin, static_cast<int64_t>(wait.cause)});
    before = wait.begin;
  }
  return std::move(list).Finish();
}

std::string MovesJson(const StepTimeline& timeline) {
  NumberList list;
  Nanoseconds before = 0;
  for (const TimelineMove& move : timeline.moves) {
    list.Add({move.begin - before, move.end - move.begin, static_cast<int64_t>(move.lane), move.row,
              move.bytes, move.subject, static_cast<int64_t>(move.reason), move.serves,
              move.serves_step, move.count});
    before = move.begin;
  }
  return std::move(list).Finish();
}

std::string SubjectsJson(const StepTimeline& timeline) {
  std::string list = "[";
  for (const MoveSubject& subject : timeline.subjects) {
    if (list.size() > 1) list += ',';
    list += '[' + JsonQuoted(subject.what) + ',' + std::to_string(subject.chunk) + ']';
  }
  return list + "]";
}

std::string TiersJson(const StepTimeline& timeline) {
  std::string list = "[";
  for (const TierCurve& tier : timeline.tiers) {
    if (list.size() > 1) list += ',';
    NumberList points;
    Nanoseconds before = 0;
    for (const TierPoint& point : tier.points) {
      points.Add({point.time - before});
      for (const int64_t slots : point.slots) points.Add({slots});
      before = point.time;
    }
    std::string json = "{";
    AppendMember("name", JsonQuoted(tier.name), json);
    AppendMember("budget", std::to_string(tier.budget.count()), json);
    AppendMember("points", std::move(points).Finish(), json);
    list += json + "}";
  }
  return list + "]";
}

std::string TimelineJson(std::string_view title, const StepTimeline& timeline) {
  std::string json = "{";
  AppendMember("title", JsonQuoted(title), json);
  AppendMember("duration", std::to_string(timeline.duration), json);
  AppendMember("slot", std::to_string(timeline.slot_bytes.count()), json);
  AppendMember("names", Strings(timeline.names, kNameBytesMax), json);
  AppendMember("operators", OperatorsJson(timeline), json);
  AppendMember("waits", WaitsJson(timeline), json);
  AppendMember("subjects", SubjectsJson(timeline), json);
  AppendMember("moves", MovesJson(timeline), json);
  AppendMember("tiers", TiersJson(timeline), json);
  return json + "}";
}

}  // namespace

std::string ReportJson(const StepReport& report) {
  std::string json = "{";
  AppendMember("lanes",
               NamesOf<SimulatedLane, kSimulatedLaneCount>([](auto lane) { return Text(lane); }),
               json);
  AppendMember(
      "causes",
      NamesOf<SimulatedStall, kSimulatedStallCount>([](auto stall) { return Text(stall); }), json);
  AppendMember("kinds", NamesOf<ByteKind, kByteKindCount>([](auto kind) { return Name(kind); }),
               json);
  AppendMember("reasons",
               NamesOf<MoveReason, kMoveReasonCount>([](auto reason) { return Text(reason); }),
               json);
  AppendMember("chunks", Strings(report.chunk_names, kChunkNameBytesMax), json);
  std::string timelines = "[";
  if (report.simulated_timeline.has_value()) {
    timelines += TimelineJson("simulated", *report.simulated_timeline);
  }
  if (report.measured_timeline.has_value()) {
    if (timelines.size() > 1) timelines += ',';
    timelines += TimelineJson("measured", *report.measured_timeline);
  }
  AppendMember("timelines", timelines + "]", json);
  return json + "}";
}

}  // namespace gantry
