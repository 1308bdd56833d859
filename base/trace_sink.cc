#include "base/trace_sink.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/mutex.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD in UTF-8

void AppendEscapedCharacter(char c, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  if (c == '"' || c == '\\') {
    out += '\\';
    out += c;
  } else if (static_cast<unsigned char>(c) < 0x20) {
    out += "\\u00";
    out += kHex[static_cast<unsigned char>(c) >> 4];
    out += kHex[static_cast<unsigned char>(c) & 15];
  } else {
    out += c;
  }
}

// Appends `text` as a JSON string, quotes included; bytes that are not UTF-8 become U+FFFD.
void AppendJsonString(std::string_view text, std::string& out) {
  out += '"';
  while (!text.empty()) {
    const size_t size = Utf8SequenceSize(text);
    if (size == 1) {
      AppendEscapedCharacter(text.front(), out);
    } else if (size == 0) {
      out += kReplacement;
    } else {
      out += text.substr(0, size);
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  out += '"';
}

// The format counts in microseconds; three decimals keep the nanoseconds.
void AppendMicroseconds(Nanoseconds time, std::string& out) {
  const bool negative = time < 0;
  const uint64_t magnitude =
      negative ? uint64_t{0} - static_cast<uint64_t>(time) : static_cast<uint64_t>(time);
  const std::string fraction = std::to_string(magnitude % 1000);
  if (negative) out += '-';
  out += std::to_string(magnitude / 1000);
  out += '.';
  out.append(3 - fraction.size(), '0');
  out += fraction;
}

// Starts an object with its phase letter, track number and name.
void AppendHead(std::string_view phase, int64_t track, std::string_view name, std::string& out) {
  out += R"({"ph":")";
  out += phase;
  out += R"(","pid":1,"tid":)";
  out += std::to_string(track);
  out += R"(,"name":)";
  AppendJsonString(name, out);
}

}  // namespace

void JsonTraceSink::Slice(std::string_view track, std::string_view name, Nanoseconds begin,
                          Nanoseconds end) {
  GANTRY_CHECK_LE(begin, end) << "slice " << name << " on " << track;
  Add({.kind = EventKind::kSlice,
       .track = std::string(track),
       .name = std::string(name),
       .begin = begin,
       .end_or_value = end});
}

void JsonTraceSink::Counter(std::string_view name, Nanoseconds time, int64_t value) {
  Add({.kind = EventKind::kCounter,
       .track = {},
       .name = std::string(name),
       .begin = time,
       .end_or_value = value});
}

void JsonTraceSink::Add(Event event) {
  MutexLock lock(mutex_);
  if (static_cast<int64_t>(events_.size()) >= events_max_) {
    ++dropped_;
    return;
  }
  events_.push_back(std::move(event));
}

int64_t JsonTraceSink::dropped() const {
  MutexLock lock(mutex_);
  return dropped_;
}

absl::Status JsonTraceSink::Write(FileCalls& files, const std::string& path) const {
  std::string out = R"({"displayTimeUnit":"ns","traceEvents":[)";
  {
    MutexLock lock(mutex_);
    std::map<std::string_view, int64_t> tracks;  // numbered from 1 in order of first use
    const char* separator = "\n";
    for (const Event& event : events_) {
      out += std::exchange(separator, ",\n");
      if (event.kind == EventKind::kCounter) {
        AppendHead("C", 0, event.name, out);
        out += R"(,"ts":)";
        AppendMicroseconds(event.begin, out);
        out += StrCat(R"(,"args":{"value":)", event.end_or_value, "}}");
        continue;
      }
      const auto [track, is_new] =
          tracks.emplace(event.track, static_cast<int64_t>(tracks.size()) + 1);
      if (is_new) {
        AppendHead("M", track->second, "thread_name", out);
        out += R"(,"args":{"name":)";
        AppendJsonString(event.track, out);
        out += "}},\n";
      }
      AppendHead("X", track->second, event.name, out);
      out += R"(,"ts":)";
      AppendMicroseconds(event.begin, out);
      out += R"(,"dur":)";
      AppendMicroseconds(event.end_or_value - event.begin, out);
      out += "}";
    }
    out += StrCat("\n],\"otherData\":{\"dropped_events\":", dropped_, "}}\n");
  }
  return WriteFileAtomically(files, path, std::as_bytes(std::span(out)));
}

}  // namespace gantry
