#include "benches/policies/policy_summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/strings.h"
#include "benches/policies/policy_suite.h"
#include "benches/suite/report.h"
#include "placement_policy/simulator.h"

namespace gantry {
namespace {

constexpr std::string_view kPlanned = "planned";
constexpr std::string_view kApart = "gpt2";  // its name among the built-in models

double Seconds(Nanoseconds time) { return static_cast<double>(time) * 1e-9; }

template <typename... Arguments>
std::string Print(const char* format, Arguments... arguments) {
  std::array<char, 256> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), format, arguments...);
  return {buffer.data(), std::min(static_cast<size_t>(length), buffer.size() - 1)};
}

// Ratios with the case that each is of.
class Ratios {
 public:
  void Add(double ratio, std::string name) {
    if (ratio > worst_) {
      worst_ = ratio;
      worst_name_ = std::move(name);
    }
    logarithms_ += std::log(ratio);
    ++count_;
  }
  int count() const { return count_; }
  double mean() const { return std::exp(logarithms_ / count_); }
  double worst() const { return worst_; }

  void AddMean(std::string_view name, std::vector<BenchRow>& rows) const {
    if (count_ == 0) return;
    rows.push_back(FigureRow(name, mean(), ""));
    rows.back().note = StrCat(count_, " cases");
  }
  void AddWorst(std::string_view name, std::vector<BenchRow>& rows) const {
    if (count_ == 0) return;
    rows.push_back(FigureRow(name, worst_, ""));
    rows.back().note = StrCat(worst_name_, ", of ", count_, " cases");
  }

 private:
  double logarithms_ = 0.0;
  double worst_ = 0.0;
  std::string worst_name_;
  int count_ = 0;
};

const PolicyOutcome* OutcomeOf(const PolicySuite& suite, const CaseOutcome& outcome,
                               std::string_view policy) {
  for (const PolicyOutcome& one : outcome.policies) {
    if (suite.policies[one.policy] == policy && one.reason.empty()) return &one;
  }
  return nullptr;
}

bool IsApart(const PolicySuite& suite, const CaseOutcome& outcome) {
  return suite.models[outcome.the_case.model].name == kApart;
}

std::string PlacementText(const PlacementShape& shape) {
  std::string text;
  const auto add = [&text](int64_t count, std::string_view what) {
    if (count > 0) text += StrCat(text.empty() ? "" : ", ", count, " ", what);
  };
  add(shape.resident, "resident");
  add(shape.streamed, "streamed");
  add(shape.next_forward, "in the next forward");
  add(shape.in_files, "in files");
  return text;
}

// The fastest of the other policies; null: there is none.
const PolicyOutcome* BestOther(const CaseOutcome& outcome, const PolicyOutcome& planned) {
  const PolicyOutcome* best = nullptr;
  for (const PolicyOutcome& policy : outcome.policies) {
    if (&policy == &planned || !policy.reason.empty() || policy.step.elapsed <= 0) continue;
    if (best == nullptr || policy.step.elapsed < best->step.elapsed) best = &policy;
  }
  return best;
}

BenchRow PolicyRow(const CaseOutcome& outcome, const PolicyOutcome& policy, std::string name) {
  if (!policy.reason.empty()) return SkippedRow(name, "s", StrCat("no plan: ", policy.reason));
  BenchRow row = FigureRow(name, Seconds(policy.step.elapsed), "s");
  if (policy.bound > 0) {
    row.bound = Seconds(policy.bound);
    row.ratio = Seconds(policy.step.elapsed) / Seconds(policy.bound);
  }
  row.figures = {{"compute", Seconds(outcome.compute)}};
  if (policy.step.elapsed > 0) {
    row.figures.emplace_back("practicality", static_cast<double>(outcome.compute) /
                                                 static_cast<double>(policy.step.elapsed));
  }
  if (outcome.free_bound > 0) {
    row.figures.emplace_back("free_bound", Seconds(outcome.free_bound));
  }
  for (int i = 0; i < kSimulatedStallCount; ++i) {
    row.figures.emplace_back(StrCat("stall_", Name(static_cast<SimulatedStall>(i))),
                             Seconds(policy.step.stalls[static_cast<size_t>(i)]));
  }
  row.note = PlacementText(policy.shape);
  const auto note = [&row](std::string_view text) {
    row.note += StrCat(row.note.empty() ? "" : "; ", text);
  };
  if (!policy.limit.empty()) note(StrCat("limit: ", policy.limit));
  if (!policy.step.steady) note("the steps do not repeat: a mean");
  return row;
}

// ---- For people

std::string SummaryText(std::span<const BenchRow> summary) {
  std::string text = "  certificate\n";
  for (const BenchRow& row : summary) {
    text += Print("  %-24s %8.4f  ", row.name.c_str(), row.value.value_or(0.0)) + row.note + "\n";
  }
  return text + "\n";
}

// How much longer each policy takes than the best of the case, by budget.
std::string ComparisonText(const PolicySuite& suite, std::span<const CaseOutcome> outcomes) {
  std::map<std::pair<size_t, size_t>, Ratios> ratios;
  std::map<size_t, int> plans;
  int cases = 0;
  for (const CaseOutcome& outcome : outcomes) {
    if (!outcome.reason.empty()) continue;
    ++cases;
    Nanoseconds best = 0;
    for (const PolicyOutcome& policy : outcome.policies) {
      if (!policy.reason.empty()) continue;
      ++plans[policy.policy];
      if (best == 0 || policy.step.elapsed < best) best = policy.step.elapsed;
    }
    if (best == 0) continue;
    for (const PolicyOutcome& policy : outcome.policies) {
      if (!policy.reason.empty()) continue;
      ratios[{policy.policy, outcome.the_case.budget}].Add(
          static_cast<double>(policy.step.elapsed) / static_cast<double>(best), "");
    }
  }
  std::string text = "  step time / best policy of the case, geometric mean, by device budget\n";
  text += Print("  %-12s", "");
  for (const double budget : suite.budgets) text += Print(" %7.3g %%", budget * 100.0);
  text += "    cases planned\n";
  for (size_t policy = 0; policy < suite.policies.size(); ++policy) {
    text += Print("  %-12s", suite.policies[policy].c_str());
    for (size_t budget = 0; budget < suite.budgets.size(); ++budget) {
      const Ratios& cell = ratios[{policy, budget}];
      text += cell.count() == 0 ? Print(" %9s", "-") : Print(" %9.3f", cell.mean());
    }
    text += StrCat("    ", plans[policy], " of ", cases, "\n");
  }
  return text + "\n";
}

// The step of the best policy asked for (`planned`, or the only one) by case, a line for each
// model, machine and number of tokens.
std::string StepsText(const PolicySuite& suite, std::span<const CaseOutcome> outcomes,
                      std::string_view policy) {
  using Line = std::tuple<size_t, size_t, int64_t>;
  std::map<Line, std::map<size_t, std::string>> lines;
  for (const CaseOutcome& outcome : outcomes) {
    const PolicyOutcome* const one = OutcomeOf(suite, outcome, policy);
    const PolicyCase& at = outcome.the_case;
    std::string cell = "-";
    if (one != nullptr) {
      cell = Print("%.3g s", Seconds(one->step.elapsed));
      if (one->step.elapsed > 0) {
        cell += Print(" %3.0f%%", 100.0 * static_cast<double>(outcome.compute) /
                                      static_cast<double>(one->step.elapsed));
      }
    }
    lines[{at.model, at.machine, at.tokens}][at.budget] = std::move(cell);
  }
  std::string text =
      StrCat("  ", policy, ": step and compute / step, by device budget; -: does not run\n");
  text += Print("  %-42s", "");
  for (const double budget : suite.budgets) text += Print(" %13.3g %%", budget * 100.0);
  text += "\n";
  for (const auto& [line, cells] : lines) {
    const auto& [model, machine, tokens] = line;
    text += Print(
        "  %-42s",
        StrCat(suite.models[model].name, " ", suite.machines[machine].name, " ", tokens).c_str());
    for (const auto& [budget, cell] : cells) text += Print(" %15s", cell.c_str());
    text += "\n";
  }
  return text + "\n";
}

std::string ReasonsText(const PolicySuite& suite, std::span<const CaseOutcome> outcomes) {
  std::string text;
  for (const CaseOutcome& outcome : outcomes) {
    if (outcome.reason.empty()) continue;
    text += StrCat("  ", CaseName(suite, outcome.the_case), ": ", outcome.reason, "\n");
  }
  return text.empty() ? text : StrCat("  cases that no policy can run\n", text, "\n");
}

}  // namespace

std::vector<BenchRow> CaseRows(const PolicySuite& suite, std::span<const CaseOutcome> outcomes) {
  std::vector<BenchRow> rows;
  for (const CaseOutcome& outcome : outcomes) {
    const std::string name = CaseName(suite, outcome.the_case);
    if (!outcome.reason.empty()) {
      for (const std::string& policy : suite.policies) {
        rows.push_back(
            SkippedRow(StrCat(name, "/", policy), "s", StrCat("does not fit: ", outcome.reason)));
      }
      continue;
    }
    for (const PolicyOutcome& policy : outcome.policies) {
      rows.push_back(PolicyRow(outcome, policy, StrCat(name, "/", suite.policies[policy.policy])));
    }
  }
  return rows;
}

std::vector<BenchRow> SummaryRows(const PolicySuite& suite, std::span<const CaseOutcome> outcomes) {
  Ratios window, free, apart, apart_free, other;
  std::map<std::string, std::pair<Ratios, Ratios>> groups;  // window and free
  for (const CaseOutcome& outcome : outcomes) {
    const PolicyOutcome* const planned = OutcomeOf(suite, outcome, kPlanned);
    if (planned == nullptr) continue;
    const std::string name = CaseName(suite, outcome.the_case);
    const auto elapsed = static_cast<double>(planned->step.elapsed);
    const bool is_apart = IsApart(suite, outcome);
    const std::string& group = suite.machines[outcome.the_case.machine].group;
    if (planned->bound > 0) {
      const double ratio = elapsed / static_cast<double>(planned->bound);
      (is_apart ? apart : window).Add(ratio, name);
      if (!is_apart && !group.empty()) groups[group].first.Add(ratio, name);
    }
    if (outcome.free_bound > 0) {
      const double ratio = elapsed / static_cast<double>(outcome.free_bound);
      (is_apart ? apart_free : free).Add(ratio, name);
      if (!is_apart && !group.empty()) groups[group].second.Add(ratio, name);
    }
    const PolicyOutcome* const best = BestOther(outcome, *planned);
    if (best != nullptr) {
      other.Add(elapsed / static_cast<double>(best->step.elapsed),
                StrCat(name, " beside ", suite.policies[best->policy]));
    }
  }
  std::vector<BenchRow> rows;
  window.AddMean("window/geomean", rows);
  window.AddWorst("window/worst", rows);
  free.AddMean("free/geomean", rows);
  free.AddWorst("free/worst", rows);
  for (const auto& [group, ratios] : groups) {
    ratios.first.AddMean(StrCat("window/", group, "/geomean"), rows);
    ratios.first.AddWorst(StrCat("window/", group, "/worst"), rows);
    ratios.second.AddMean(StrCat("free/", group, "/geomean"), rows);
    ratios.second.AddWorst(StrCat("free/", group, "/worst"), rows);
  }
  apart.AddWorst("gpt2/worst", rows);
  apart_free.AddWorst("gpt2/free_worst", rows);
  other.AddWorst("best_other/worst", rows);
  return rows;
}

std::vector<BenchRow> RandomRows(const RandomRatios& ratios) {
  std::vector<BenchRow> rows;
  const auto add = [&rows](std::string_view name, std::vector<double> values, double share) {
    if (values.empty()) return;
    std::ranges::sort(values);
    // The least value that at least this share does not exceed.
    const auto rank =
        static_cast<size_t>(std::ceil(share * static_cast<double>(values.size()) - 1e-9));
    rows.push_back(FigureRow(name, values[std::max<size_t>(rank, 1) - 1], ""));
    rows.back().note = StrCat(values.size(), " problems");
  };
  std::vector<double> all = ratios.unit_sizes;
  all.insert(all.end(), ratios.mixed_sizes.begin(), ratios.mixed_sizes.end());
  add("random/median", std::move(all), 0.5);
  add("random/p99", ratios.unit_sizes, 0.99);
  add("random/p99_mixed", ratios.mixed_sizes, 0.99);
  return rows;
}

std::string PoliciesText(const PolicySuite& suite, std::span<const CaseOutcome> outcomes,
                         std::span<const BenchRow> summary) {
  std::string text = "\npolicies (simulated)\n\n";
  if (suite.policies.size() > 1) text += ComparisonText(suite, outcomes);
  const bool has_planned = std::ranges::find(suite.policies, kPlanned) != suite.policies.end();
  text += StepsText(suite, outcomes, has_planned ? kPlanned : std::string_view(suite.policies[0]));
  text += ReasonsText(suite, outcomes);
  return text + SummaryText(summary);
}

}  // namespace gantry
