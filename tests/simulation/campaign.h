// Runs many fault cases in child processes, so that an abort, a crash or a hang of one case is
// that case's failure and the others go on.
#ifndef GANTRY_TESTS_SIMULATION_CAMPAIGN_H_
#define GANTRY_TESTS_SIMULATION_CAMPAIGN_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/simulation/fault_case.h"

namespace gantry {

struct CampaignOptions {
  int64_t first = 0;  // number of the first case
  int64_t cases;
  // Case number `index`, made in the child that runs it. A child asks for ascending numbers.
  std::function<absl::StatusOr<FaultCase>(CaseRunner& runner, int64_t index)> make;
  int workers = 1;              // children at a time
  int64_t cases_together = 25;  // neighbours that one child runs
  int64_t progress_every = 0;   // cases between lines on standard error; 0: none
};

struct CampaignResult {
  std::array<int64_t, kCaseOutcomeCount> outcomes{};
  int64_t died = 0;                   // aborted, crashed or hung
  std::vector<std::string> failures;  // the first ones, each with what replays it

  int64_t cases() const;
  // "2100 cases: 500 right, 1600 resumed after an error, 0 not reached, 0 wrong, 0 died".
  std::string ToString() const;
};

// Gives up early when too much fails.
CampaignResult RunCampaign(const CampaignOptions& options);

// All faults at every operation of a healthy run; at most `per_fault` evenly spread
// operations for each fault (0: every one).
absl::StatusOr<std::vector<FaultCase>> AllCases(CaseRunner& runner, const CaseRunner::Healthy& run,
                                                int64_t per_fault);

// Case `index` of an endless list that follows from `seed`; neighbours share a scenario. One in
// five scenarios is the file tier by itself.
absl::StatusOr<FaultCase> RandomCase(CaseRunner& runner, uint64_t seed, int64_t index);

}  // namespace gantry

#endif  // GANTRY_TESTS_SIMULATION_CAMPAIGN_H_
