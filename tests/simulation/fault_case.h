// One case of the fault campaign: a scenario, an order of events and a fault. The run must compute
// what the oracle computes, or end with a typed error after which a new run goes on from the last
// checkpoint to the oracle's bits.
#ifndef GANTRY_TESTS_SIMULATION_FAULT_CASE_H_
#define GANTRY_TESTS_SIMULATION_FAULT_CASE_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/testing/fault_plan.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulated_run.h"

namespace gantry {

struct FaultCase {
  uint64_t scenario_seed = 0;
  uint64_t order_seed = 0;
  Fault fault{.point = FaultPoint::kOpen};
};
// Numbers that name the case: "7:0:2:3:1:1:28:0". ParseCase reads them; kInvalidArgument else.
std::string Format(const FaultCase& fault_case);
absl::StatusOr<FaultCase> ParseCase(std::string_view text);

enum class CaseOutcome : uint8_t {
  kRight,       // the run ended with the right bits in spite of the fault
  kResumed,     // a typed error, then the right bits from the last checkpoint
  kNotReached,  // the run had too few such operations
  kWrong,
};
inline constexpr int kCaseOutcomeCount = 4;
std::string_view Name(CaseOutcome outcome);

struct CaseReport {
  CaseOutcome outcome;
  std::string message;  // of kWrong: what is wrong; of kResumed: the error
};

// How often each thing happens in a healthy run.
using OperationCounts = std::array<int64_t, kFaultPointCount>;

// Remembers scenarios, their oracles and their healthy runs. One thread.
class CaseRunner {
 public:
  CaseReport Run(const FaultCase& fault_case);
  // Errors: those of drawing the scenario, and of a healthy run that is not right.
  absl::StatusOr<OperationCounts> Count(uint64_t scenario_seed, uint64_t order_seed);
  // Of a seed that Count or Run accepted.
  const Scenario& scenario(uint64_t seed) const { return known_.at(seed).scenario; }

 private:
  struct Known {
    Scenario scenario;
    Fingerprint expected;
  };
  absl::StatusOr<const Known*> Find(uint64_t seed);
  CaseReport Resume(const FaultCase& fault_case, const Known& known, const RunResult& failed);

  std::map<uint64_t, Known> known_;
  std::map<std::pair<uint64_t, uint64_t>, OperationCounts> counts_;
};

// The effects worth trying at a point, as faults of operation 0; those that go on for ever have a
// count without end.
std::vector<Fault> FaultsAt(FaultPoint point);

// What is wrong with an error that an operating fault led to; empty: nothing.
std::string ComplaintAbout(const absl::Status& status);

}  // namespace gantry

#endif  // GANTRY_TESTS_SIMULATION_FAULT_CASE_H_
