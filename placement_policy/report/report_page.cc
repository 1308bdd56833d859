#include "placement_policy/report/report_page.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/strings.h"
#include "placement_policy/report/html_text.h"
#include "placement_policy/report/lane_text.h"
#include "placement_policy/report/report_json.h"
#include "placement_policy/report/report_page_html.h"
#include "placement_policy/report/report_text.h"
#include "placement_policy/report/step_report.h"
#include "placement_policy/report/step_timeline.h"
#include "placement_policy/simulator.h"

namespace gantry {
namespace {

constexpr std::string_view kNothing = "–";

std::string Cell(std::string_view text) {
  return StrCat("<td class=\"number\">", HtmlText(text), "</td>");
}

std::string Percent(double share) { return StrCat(Fixed(100.0 * share, 1), " %"); }

double Share(Nanoseconds part, Nanoseconds of) {
  return of <= 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(of);
}

std::string Bar(double share, std::string_view kind) {
  const double width = std::clamp(100.0 * share, 0.0, 100.0);
  return StrCat("<span class=\"bar ", kind, "\"><i style=\"width:", Fixed(width, 1),
                "%\"></i></span>");
}

// Simulated, measured, and measured / simulated of one time; of a step's share, with bars.
class TimeTable {
 public:
  explicit TimeTable(const StepReport& report)
      : simulated_(report.simulated.has_value() ? &*report.simulated : nullptr),
        measured_(report.measured.has_value() ? &*report.measured : nullptr) {}

  std::string Head(std::string_view first, std::string_view more) const {
    std::string html;
    if (both()) {
      html +=
          "<ul class=\"key\"><li style=\"--swatch: var(--kind0)\">simulated</li><li "
          "style=\"--swatch: var(--kind1)\">measured</li></ul>";
    }
    html += StrCat("<div class=\"wide\"><table><thead><tr><th>", first, "</th>");
    for (const char* const side : {simulated_ != nullptr ? "simulated" : nullptr,
                                   measured_ != nullptr ? "measured" : nullptr}) {
      if (side == nullptr) continue;
      html += StrCat("<th class=\"number\">", side, "</th><th class=\"number\">of it</th>");
    }
    if (both()) html += "<th class=\"number\">measured / simulated</th>";
    return html + std::string(more) + "<th>share of the step</th></tr></thead><tbody>";
  }

  template <typename Get>
  std::string Row(std::string_view name, Get get, const std::string& more) const {
    std::string html = StrCat("<tr><td>", HtmlText(name), "</td>");
    std::string bars;
    const auto add = [&](const StepFigures* figures, std::string_view kind) {
      if (figures == nullptr) return;
      const double share = Share(get(*figures), figures->elapsed);
      html += Cell(TimeText(get(*figures))) + Cell(Percent(share));
      bars += Bar(share, kind);
    };
    add(simulated_, "simulated");
    add(measured_, "measured");
    if (both()) {
      const Nanoseconds simulated = get(*simulated_);
      html +=
          Cell(simulated > 0 ? Fixed(Share(get(*measured_), simulated), 3) : std::string(kNothing));
    }
    return html + more + "<td>" + bars + "</td></tr>";
  }

 private:
  bool both() const { return simulated_ != nullptr && measured_ != nullptr; }

  const StepFigures* const simulated_;  // null: there are none
  const StepFigures* const measured_;
};

constexpr std::string_view kTableEnd = "</tbody></table></div>";

std::string CertificateTable(const StepReport& report) {
  if (report.certificate.empty()) return "";
  std::string html = "<section><h2>Certificate of the plan</h2><div class=\"wide\"><table><tbody>";
  for (const ReportFact& fact : report.certificate) {
    html += StrCat(
        "<tr><th>", HtmlText(fact.name), "</th>", "<td class=\"text\">", HtmlText(fact.value),
        fact.note.empty() ? std::string()
                          : StrCat(" <span class=\"soft\">", HtmlText(fact.note), "</span>"),
        "</td></tr>");
  }
  return StrCat(html, kTableEnd, "</section>");
}

std::string StallTable(const StepReport& report) {
  if (!report.simulated && !report.measured) return "";
  const TimeTable table(report);
  std::string html = "<section><h2>The step, and why it waits</h2>" + table.Head("", "");
  html += table.Row("step", [](const StepFigures& f) { return f.elapsed; }, "");
  html += table.Row("computing", [](const StepFigures& f) { return f.compute; }, "");
  for (size_t cause = 0; cause < kSimulatedStallCount; ++cause) {
    html += table.Row(
        StrCat("waiting ", Text(static_cast<SimulatedStall>(cause))),
        [cause](const StepFigures& f) { return f.stalls[cause]; }, "");
  }
  return StrCat(html, kTableEnd, "</section>");
}

std::string LaneTable(const StepReport& report) {
  if (!report.simulated && !report.measured) return "";
  const TimeTable table(report);
  std::string more;
  if (report.simulated) more += "<th class=\"number\">bytes, simulated</th>";
  if (report.measured) more += "<th class=\"number\">bytes, measured</th>";
  std::string html = "<section><h2>Lanes</h2>" + table.Head("busy", more);
  for (size_t lane = 0; lane < kSimulatedLaneCount; ++lane) {
    std::string bytes;
    const auto add = [&](const std::optional<StepFigures>& figures) {
      if (!figures.has_value()) return;
      const LaneFigures& of = figures->lanes[lane];
      bytes += Cell(of.bytes > 0 ? StrCat(Bytes(of.bytes)) : std::string(kNothing));
    };
    add(report.simulated);
    add(report.measured);
    html += table.Row(
        Text(static_cast<SimulatedLane>(lane)),
        [lane](const StepFigures& f) { return f.lanes[lane].busy; }, bytes);
  }
  return StrCat(html, kTableEnd, "</section>");
}

std::string TierTable(const StepReport& report) {
  if (report.tiers.empty()) return "";
  const auto cell = [](const std::optional<Bytes>& bytes) {
    return Cell(bytes.has_value() ? StrCat(*bytes) : std::string(kNothing));
  };
  const bool measured = std::ranges::any_of(
      report.tiers, [](const TierFigures& tier) { return tier.measured_peak.has_value(); });
  std::string html =
      "<section><h2>Memory</h2><div class=\"wide\"><table><thead><tr><th>tier</th><th "
      "class=\"number\">budget</th><th class=\"number\">peak, simulated</th>";
  if (measured) html += "<th class=\"number\">peak, measured</th>";
  html += "</tr></thead><tbody>";
  for (const TierFigures& tier : report.tiers) {
    html += StrCat("<tr><td>", HtmlText(tier.name), "</td>",
                   cell(tier.budget > Bytes(0) ? std::optional(tier.budget) : std::nullopt),
                   cell(tier.simulated_peak), measured ? cell(tier.measured_peak) : std::string(),
                   "</tr>");
  }
  return StrCat(html, kTableEnd, "</section>");
}

std::string NotesList(const StepReport& report) {
  std::string items;
  const auto add = [&items](std::string_view prefix, const std::vector<std::string>& notes) {
    for (const std::string& note : notes) {
      items += StrCat("<li>", prefix, HtmlText(note), "</li>");
    }
  };
  add("", report.notes);
  if (report.simulated_timeline) add("Simulated step: ", report.simulated_timeline->notes);
  if (report.measured_timeline) add("Measured step: ", report.measured_timeline->notes);
  return items.empty() ? "" : StrCat("<section><h2>Notes</h2><ul>", items, "</ul></section>");
}

std::string Cards(const StepReport& report) {
  std::string html = "<ul class=\"cards\">";
  const auto add = [&html](std::string_view name, std::string_view value) {
    html += StrCat("<li><b>", HtmlText(value), "</b><span>", HtmlText(name), "</span></li>");
  };
  if (report.simulated) {
    add("simulated step", TimeText(report.simulated->elapsed));
    add("of it computing", Percent(Share(report.simulated->compute, report.simulated->elapsed)));
  }
  if (report.measured) {
    add(StrCat("measured step, mean of ", report.measured->steps),
        TimeText(report.measured->elapsed));
    add("of it computing", Percent(Share(report.measured->compute, report.measured->elapsed)));
  }
  if (report.simulated && report.measured && report.simulated->elapsed > 0) {
    add("measured / simulated",
        Fixed(Share(report.measured->elapsed, report.simulated->elapsed), 3));
  }
  return html + "</ul>";
}

// Each mark once, in one pass: what is put in is not searched.
std::string Fill(std::string_view page, const std::map<std::string_view, std::string>& parts) {
  std::string html;
  while (true) {
    const size_t begin = page.find("{{");
    html += page.substr(0, begin);
    if (begin == std::string_view::npos) return html;
    const size_t end = page.find("}}", begin);
    GANTRY_CHECK(end != std::string_view::npos);
    const auto part = parts.find(page.substr(begin + 2, end - begin - 2));
    GANTRY_CHECK(part != parts.end()) << page.substr(begin, end - begin);
    html += part->second;
    page.remove_prefix(end + 2);
  }
}

}  // namespace

std::string ReportPage(const StepReport& report) {
  StepReport limited = report;
  for (std::optional<StepTimeline>* timeline :
       {&limited.simulated_timeline, &limited.measured_timeline}) {
    if (timeline->has_value()) LimitTimeline({}, **timeline);
  }
  return Fill(ReportPageHtml(),
              {{"title", HtmlText(limited.title)},
               {"subtitle", HtmlText(limited.subtitle)},
               {"cards", Cards(limited)},
               {"tables", CertificateTable(limited) + StallTable(limited) + LaneTable(limited) +
                              TierTable(limited) + NotesList(limited)},
               {"data", JsonForScript(ReportJson(limited))}});
}

}  // namespace gantry
