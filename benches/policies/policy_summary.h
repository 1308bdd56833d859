// What the outcomes of a policy suite amount to: a row for each case and policy, and summary rows,
// in the form of the other benchmarks, with two differences: `ratio` is value / bound, at least 1,
// and `figures` of a row say what its value is made of.
//
// Rows MODEL/MACHINE/BUDGET/POLICY: the simulated step and the bound for its placement. Cases that
// cannot run have no value; the note says why.
// Summary rows:
//   window/geomean, window/worst   value / bound of `planned`, for the placement it chose
//   free/geomean, free/worst       the same beside the bound for any placement
//   window/GROUP/..., free/GROUP/...  the same for the machines of a group
//   gpt2/worst, gpt2/free_worst    GPT-2 apart, whose tied embedding makes a loose bound; the rows
//                                  above leave it out
//   best_other/worst               `planned` / the best other policy of the case
//   random/...                     small random problems / their exhaustive optimum
//
// Pure functions.
#ifndef GANTRY_BENCHES_POLICIES_POLICY_SUMMARY_H_
#define GANTRY_BENCHES_POLICIES_POLICY_SUMMARY_H_

#include <span>
#include <string>
#include <vector>

#include "benches/policies/policy_suite.h"
#include "benches/suite/report.h"

namespace gantry {

// Of outcomes of the suite's cases, in any order.
std::vector<BenchRow> CaseRows(const PolicySuite& suite, std::span<const CaseOutcome> outcomes);
std::vector<BenchRow> SummaryRows(const PolicySuite& suite, std::span<const CaseOutcome> outcomes);

// Of small problems: elapsed / optimum by kind. "random/median" over all; "random/p99" of blocks of
// one size, "random/p99_mixed" of others. Nothing for empty lists.
struct RandomRatios {
  std::vector<double> unit_sizes;
  std::vector<double> mixed_sizes;
};
std::vector<BenchRow> RandomRows(const RandomRatios& ratios);

// For people: the summary, the policies side by side, the worst cases, and `planned` by case.
std::string PoliciesText(const PolicySuite& suite, std::span<const CaseOutcome> outcomes,
                         std::span<const BenchRow> summary);

}  // namespace gantry

#endif  // GANTRY_BENCHES_POLICIES_POLICY_SUMMARY_H_
