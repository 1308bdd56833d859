#include "trainer/cli/plan_ways.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <string_view>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/strings.h"
#include "placement_policy/plan_alternatives.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

template <typename... Arguments>
std::string Print(const char* format, Arguments... arguments) {
  std::array<char, 256> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), format, arguments...);
  return {buffer.data(), std::min(static_cast<size_t>(length), buffer.size() - 1)};
}

std::string Seconds(Nanoseconds time) { return Print("%.4g s", static_cast<double>(time) * 1e-9); }

// What there is to say about one that was not chosen.
std::string NoteOf(const TriedAlternative& tried) {
  if (absl::IsResourceExhausted(tried.status)) {
    return "does not fit: " + std::string(FromAbsl(tried.status.message()));
  }
  if (!tried.status.ok()) return "takes at least " + Seconds(tried.bound);
  return tried.in_full ? "" : "roughly";
}

Bytes ChunkBytes(const StepWay& way) { return Bytes(2 * way.chunk_elements); }

}  // namespace

std::string_view Name(MicroBatchOrder order) {
  return order == MicroBatchOrder::kLayerMajor ? "layer-major" : "micro-batch-major";
}

std::string_view Name(Recomputation recomputation) {
  return recomputation == Recomputation::kNone ? "none" : "full";
}

std::string WaysText(const StepForecast& step) {
  if (step.ways.size() < 2) return "";
  std::string text = Print("  %-18s %-10s %-9s %10s %10s\n", "ways compared", "recompute", "chunks",
                           "step", "bound");
  for (size_t i = 0; i < step.ways.size(); ++i) {
    const StepWay& way = step.ways[i];
    const TriedAlternative& tried = step.tried[i];
    const bool ok = tried.status.ok();
    text += Print("  %-18s %-10s %-9s %10s %10s  ", std::string(Name(way.order)).c_str(),
                  std::string(Name(way.recomputation)).c_str(), StrCat(ChunkBytes(way)).c_str(),
                  ok ? Seconds(tried.predicted).c_str() : "-",
                  tried.bound > 0 ? Seconds(tried.bound).c_str() : "-");
    text += way == step.way ? std::string("chosen") : NoteOf(tried);
    text += "\n";
  }
  return text + "\n";
}

Json WaysJson(const StepForecast& step) {
  Json rows = Json::array();
  for (size_t i = 0; i < step.ways.size(); ++i) {
    const StepWay& way = step.ways[i];
    const TriedAlternative& tried = step.tried[i];
    rows.push_back(
        {{"order", Name(way.order)},
         {"recompute", Name(way.recomputation)},
         {"chunk_bytes", ChunkBytes(way).count()},
         {"seconds",
          tried.status.ok() ? Json(static_cast<double>(tried.predicted) * 1e-9) : Json(nullptr)},
         {"bound_seconds",
          tried.bound > 0 ? Json(static_cast<double>(tried.bound) * 1e-9) : Json(nullptr)},
         {"in_full", tried.in_full},
         {"chosen", way == step.way},
         {"note", NoteOf(tried)}});
  }
  return rows;
}

}  // namespace gantry
