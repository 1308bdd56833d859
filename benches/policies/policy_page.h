// The policy suite as one HTML page that needs no network: the certificate, for each model curves
// of step time and practicality against the device budget, and a table of every case. Light or dark
// as the reader's system is; on a phone the charts lie one below the other.
//
// A pure function.
#ifndef GANTRY_BENCHES_POLICIES_POLICY_PAGE_H_
#define GANTRY_BENCHES_POLICIES_POLICY_PAGE_H_

#include <span>
#include <string>

#include "benches/policies/policy_suite.h"
#include "benches/suite/report.h"

namespace gantry {

// Of outcomes of the suite's cases; `summary` as SummaryRows and RandomRows give it.
std::string PoliciesPage(const PolicySuite& suite, std::span<const CaseOutcome> outcomes,
                         std::span<const BenchRow> summary);

}  // namespace gantry

#endif  // GANTRY_BENCHES_POLICIES_POLICY_PAGE_H_
