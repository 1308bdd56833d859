#include "benches/policies/policy_page.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "benches/policies/line_chart.h"
#include "benches/policies/policy_suite.h"
#include "benches/policies/policy_summary.h"
#include "benches/suite/report.h"
#include "placement_policy/report/html_text.h"

namespace gantry {
namespace {

// Colours that people with any colour vision tell apart on white and on black.
constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Gantry: placement policies</title>
<style>
:root { --back: #fff; --ink: #1b1f24; --soft: #5c6670; --grid: #dde2e7; --card: #f6f8fa;
  --line0: #0b6bcb; --line1: #c2410c; --line2: #0d8a63; --line3: #8b5cf6; --line4: #b8860b;
  --line5: #64748b; --line6: #be185d; --line7: #155e75; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --ink: #e6e9ec; --soft: #9aa5b1;
  --grid: #30363d; --card: #1c2126; --line0: #58a6ff; --line1: #ff8c5a; --line2: #3fcf9b;
  --line3: #b794f6; --line4: #e3b341; --line5: #94a3b8; --line6: #f472b6; --line7: #4dd0e1; } }
body { margin: 0 auto; padding: 1rem; max-width: 75rem; background: var(--back);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; font-weight: 600; }
p, .soft { color: var(--soft); max-width: 46rem; }
.charts { display: grid; gap: .75rem;
  grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); }
.charts svg { background: var(--card); border-radius: 6px; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 10px system-ui, sans-serif; }
svg .title { fill: var(--ink); font-size: 11px; font-weight: 600; }
svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .grid { stroke: var(--grid); }
svg .line { fill: none; stroke: var(--line); stroke-width: 2; }
svg circle { fill: var(--line); stroke: var(--card); }
.key { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: 0; list-style: none; }
.key li::before { content: ""; display: inline-block; width: .8em; height: .8em;
  margin-right: .4em; border-radius: 50%; background: var(--line); }
summary { cursor: pointer; font-weight: 600; padding: .4rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--grid);
  white-space: nowrap; }
td.number { text-align: right; }
td.note { white-space: normal; min-width: 12rem; overflow-wrap: anywhere; }
</style></head><body>
)";

std::string Number(double value, const char* format) {
  std::array<char, 64> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), format, value);
  return {buffer.data(), static_cast<size_t>(length)};
}

std::string Cell(const std::optional<double>& value, const char* format) {
  return StrCat("<td class=\"number\">", value.has_value() ? Number(*value, format) : "–", "</td>");
}

std::string SummaryTable(std::span<const BenchRow> summary) {
  std::string html =
      "<h2>Certificate</h2><div class=\"wide\"><table><tr><th>figure</th><th>value"
      "</th><th>of</th></tr>";
  for (const BenchRow& row : summary) {
    html += StrCat("<tr><td>", HtmlText(row.name), "</td>", Cell(row.value, "%.4f"),
                   "<td class=\"note\">", HtmlText(row.note), "</td></tr>");
  }
  return html +
         "</table></div><p>Simulated step / lower bound: 1 is the best that any plan can do. "
         "<em>window</em>: with the placement that <em>planned</em> chose; <em>free</em>: with any "
         "placement. GPT-2 stands apart, since its tied embedding makes the bounds loose.</p>";
}

std::string KeyOf(const PolicySuite& suite) {
  std::string html = "<ul class=\"key\">";
  for (size_t i = 0; i < suite.policies.size(); ++i) {
    html +=
        StrCat("<li style=\"--line:var(--line", i, ")\">", HtmlText(suite.policies[i]), "</li>");
  }
  return html + "</ul>";
}

enum class Curve { kTime, kPracticality };

LineChart ChartOf(const PolicySuite& suite, const std::vector<const CaseOutcome*>& outcomes,
                  Curve curve, std::string title) {
  LineChart chart{.title = std::move(title)};
  chart.scale = curve == Curve::kTime ? ChartScale::kLog : ChartScale::kLinear;
  chart.unit = curve == Curve::kTime ? " s" : " %";
  if (curve == Curve::kPracticality) chart.reach = 100.0;
  for (const double budget : suite.budgets) {
    chart.positions.push_back(StrCat(Number(budget * 100.0, "%.3g"), " %"));
  }
  // The last line is drawn on top: that of the first policy.
  for (size_t i = suite.policies.size(); i-- > 0;) {
    ChartLine line{.colour = static_cast<int>(i), .points = {}};
    for (const CaseOutcome* const outcome : outcomes) {
      for (const PolicyOutcome& policy : outcome->policies) {
        if (policy.policy != i || !policy.reason.empty() || policy.step.elapsed <= 0) continue;
        const double seconds = static_cast<double>(policy.step.elapsed) * 1e-9;
        const double share = 100.0 * static_cast<double>(outcome->compute) /
                             static_cast<double>(policy.step.elapsed);
        const size_t budget = outcome->the_case.budget;
        line.points.push_back({.position = static_cast<int>(budget),
                               .value = curve == Curve::kTime ? seconds : share,
                               .tip = StrCat(suite.policies[i], ", ", chart.positions[budget], ": ",
                                             Number(seconds, "%.4g"), " s, computing ",
                                             Number(share, "%.0f"), " % of it")});
      }
    }
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

std::string ModelCharts(const PolicySuite& suite, std::span<const CaseOutcome> outcomes,
                        size_t model) {
  std::map<std::pair<int64_t, size_t>, std::vector<const CaseOutcome*>> groups;
  for (const CaseOutcome& outcome : outcomes) {
    const PolicyCase& at = outcome.the_case;
    if (at.model == model) groups[{at.tokens, at.machine}].push_back(&outcome);
  }
  std::string html = StrCat("<details", model == 0 ? " open" : "", "><summary>",
                            HtmlText(suite.models[model].name), "</summary>", KeyOf(suite));
  int64_t tokens = -1;
  for (const auto& [key, group] : groups) {
    if (key.first != tokens) {
      if (tokens >= 0) html += "</div>";
      tokens = key.first;
      html += StrCat("<h3>", tokens, " tokens a step</h3><div class=\"charts\">");
    }
    bool any = false;
    for (const CaseOutcome* const outcome : group) any = any || outcome->reason.empty();
    if (!any) continue;
    const std::string& machine = suite.machines[key.second].name;
    html += ChartSvg(ChartOf(suite, group, Curve::kTime, StrCat(machine, ": step")));
    html +=
        ChartSvg(ChartOf(suite, group, Curve::kPracticality, StrCat(machine, ": compute / step")));
  }
  return html + (tokens >= 0 ? "</div>" : "") + "</details>";
}

std::string CaseTable(const PolicySuite& suite, std::span<const CaseOutcome> outcomes) {
  std::string html =
      "<h2>Every case</h2><details><summary>table</summary><div class=\"wide\"><table><tr><th>"
      "model / machine / budget @ tokens / policy</th><th>step, s</th><th>bound, s</th>"
      "<th>ratio</th><th>notes</th></tr>";
  for (const BenchRow& row : CaseRows(suite, outcomes)) {
    html += StrCat("<tr><td>", HtmlText(row.name), "</td>", Cell(row.value, "%.4g"),
                   Cell(row.bound, "%.4g"), Cell(row.ratio, "%.4f"), "<td class=\"note\">",
                   HtmlText(row.note), "</td></tr>");
  }
  return html + "</table></div></details>";
}

}  // namespace

std::string PoliciesPage(const PolicySuite& suite, std::span<const CaseOutcome> outcomes,
                         std::span<const BenchRow> summary) {
  std::string html(kHead);
  html +=
      "<h1>Placement policies</h1><p>Simulated training steps. The device budget is a share of the "
      "training state (16 bytes a parameter: parameter and gradient in 16 bits, three optimizer "
      "states in 32). Hold the pointer over a point for its figures. A policy without a point at a "
      "budget does not run there; the table says why.</p>";
  html += SummaryTable(summary);
  html += "<h2>Curves</h2>";
  for (size_t model = 0; model < suite.models.size(); ++model) {
    html += ModelCharts(suite, outcomes, model);
  }
  return html + CaseTable(suite, outcomes) + "</body></html>\n";
}

}  // namespace gantry
