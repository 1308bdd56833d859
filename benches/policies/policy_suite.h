// Cases of the policy suite: a model's step on a machine with a device budget, planned by each
// policy, beside the bounds. Simulated; nothing here is measured.
//
// Plain data; pure functions.
#ifndef GANTRY_BENCHES_POLICIES_POLICY_SUITE_H_
#define GANTRY_BENCHES_POLICIES_POLICY_SUITE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "placement_policy/hardware.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/planner.h"
#include "placement_policy/simulator.h"
#include "placement_policy/trace.h"

namespace gantry {

// What is trained: a shape, whose step is made up for any number of tokens, or a recorded step.
struct SuiteModel {
  std::string name;
  std::variant<ModelShape, Trace> step;
};

// What it is trained on. Device memory is the case's; the rest is the hardware's, except:
struct SuiteMachine {
  std::string name;
  Hardware hardware;
  // Host memory as a share of the training state; nothing: the hardware's.
  std::optional<double> host_share = std::nullopt;
  // Machines of one group have summary rows of their own; empty: none.
  std::string group = {};
};

struct PolicySuite {
  std::vector<SuiteModel> models;
  std::vector<SuiteMachine> machines;
  std::vector<double> budgets;           // device memory as shares of the training state
  std::vector<int64_t> tokens;           // of a step; recorded steps have their own
  std::vector<std::string> policies;     // names of SuitePolicyNames
  bool wait_for_norm = false;            // updates wait for the step's gradient norm
  int64_t random_problems_per_kind = 0;  // small ones, beside their exhaustive optimum
};

// Indices into the suite's lists.
struct PolicyCase {
  size_t model;
  size_t machine;
  size_t budget;
  int64_t tokens;
};

struct PolicyOutcome {
  size_t policy;
  std::string reason = {};  // why there is no plan; empty: there is one
  PlacementShape shape = {};
  SimulatedStep step = {};
  // No plan with this placement and norm mode takes less.
  Nanoseconds bound = 0;
  std::string limit = {};  // what the bound comes from
};

struct CaseOutcome {
  PolicyCase the_case;
  std::string reason = {};  // why no policy can run this; empty: some may
  Nanoseconds compute = 0;
  Nanoseconds free_bound = 0;  // no plan with any placement takes less; 0: unknown
  Nanoseconds planning = 0;  // real time that `planned` took, other cases beside it; 0: it did not
  std::vector<PolicyOutcome> policies = {};
};

// "device", ..., "planned"; the default order.
std::span<const std::string_view> SuitePolicyNames();

// Every combination; a recorded step comes once per machine and budget.
std::vector<PolicyCase> CasesOf(const PolicySuite& suite);

// MODEL/MACHINE/BUDGET with BUDGET as "0.10@8192".
std::string CaseName(const PolicySuite& suite, const PolicyCase& the_case);

// The plan of `planned` for one case. Errors: as RunCase; kResourceExhausted when it does not fit.
absl::StatusOr<MovementDecision> PlanCase(const PolicySuite& suite, const PolicyCase& the_case);

// Plans and simulates. What does not fit is part of the outcome.
// Errors: kInvalidArgument for a shape, a trace or a machine that is none.
absl::StatusOr<CaseOutcome> RunCase(const PolicySuite& suite, const PolicyCase& the_case);

}  // namespace gantry

#endif  // GANTRY_BENCHES_POLICIES_POLICY_SUITE_H_
