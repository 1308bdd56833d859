// One case of the fault campaign: what runs, an order of events and a fault. A run of the engine
// must compute what the oracle computes, or end with a typed error after which a new run goes on
// from the last checkpoint to the oracle's bits. The file tier by itself must give what was
// written, or a typed error.
#ifndef GANTRY_TESTS_SIMULATION_FAULT_CASE_H_
#define GANTRY_TESTS_SIMULATION_FAULT_CASE_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/testing/fault_plan.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulated_run.h"

namespace gantry {

enum class Subject : uint8_t { kEngine, kStore };

struct FaultCase {
  Subject subject = Subject::kEngine;
  uint64_t scenario_seed = 0;
  uint64_t order_seed = 0;
  Fault fault{.point = FaultPoint::kOpen};
};
// Numbers that name the case: "0:7:0:2:3:1:1:28:0". ParseCase reads them; kInvalidArgument else.
std::string Format(const FaultCase& fault_case);
absl::StatusOr<FaultCase> ParseCase(std::string_view text);

enum class CaseOutcome : uint8_t {
  kRight,       // the run ended with the right bits in spite of the fault
  kResumed,     // a typed error, then (the engine) the right bits from the last checkpoint
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
  struct Healthy {
    Subject subject;
    uint64_t scenario_seed;
    uint64_t order_seed;
    auto operator<=>(const Healthy&) const = default;
  };
  // Errors: those of drawing the scenario, and of a healthy run that is not right.
  absl::StatusOr<OperationCounts> Count(const Healthy& run);
  // One line. REQUIRES: a seed that Count or Run accepted.
  std::string DescribeRun(const FaultCase& fault_case) const;

 private:
  struct Known {
    Scenario scenario;
    Fingerprint expected;
  };
  absl::StatusOr<const Known*> Find(uint64_t seed);
  CaseReport RunEngine(const FaultCase& fault_case);
  static CaseReport RunStoreCase(const FaultCase& fault_case);
  absl::StatusOr<OperationCounts> CountEngine(const Healthy& run);
  static CaseReport Resume(const FaultCase& fault_case, const Known& known,
                           const SavedState& checkpoint, const std::string& error);

  std::map<uint64_t, Known> known_;
  std::map<Healthy, OperationCounts> counts_;
};

// The faults worth trying at a point, at operation 0; those that go on for ever have a count
// without end.
std::vector<Fault> FaultsAt(FaultPoint point);

// What is wrong with an error that an operating fault led to; empty: nothing.
std::string ComplaintAbout(const absl::Status& status);

}  // namespace gantry

#endif  // GANTRY_TESTS_SIMULATION_FAULT_CASE_H_
