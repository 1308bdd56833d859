// Whether a model fits its budgets, decided before anything is allocated: a pure function of the
// layout, the compiled steps and the placement.
#ifndef GANTRY_GEMINI_BUDGET_H_
#define GANTRY_GEMINI_BUDGET_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "chunk/chunk_layout.h"
#include "gemini/memory_tracer.h"
#include "placement_policy/machine.h"
#include "placement_policy/policy.h"

namespace gantry {

struct BudgetInput {
  const ChunkLayout* layout;
  std::span<const CompiledStep* const> steps;  // every recorded step; may be empty
  const Placement* placement;
  Machine machine;
};

struct BudgetNeed {
  int64_t device_slots = 0;          // the least device budget that works
  int64_t host_slots = 0;            // the least host budget that works; 0 when unified
  int64_t activation_slots = 0;      // of these, most at once for activations
  int64_t operator_block_slots = 0;  // blocks of the operator with the largest need
  std::string operator_name;         // that operator; empty without a recorded step
  int64_t update_slots = 0;          // blocks of the largest chunk's update
};

// The rules:
//   device: for every operator, its blocks and the activations alive meanwhile; where updates run
//           on the device, also one chunk's update beside the most activations;
//   host:   one chunk's update and one block on its way (a parameter and its master, where updates
//           run on the device); without a file tier everything that is not pinned on the device,
//           what layers move, and what an exchange of blocks with the device needs;
//   unified without a file tier: everything, and the activations.
BudgetNeed LeastBudget(const BudgetInput& input);

// OK, or kResourceExhausted: which budget is too small, what needs how much, and the least that
// works.
absl::Status CheckBudget(const BudgetInput& input, const BudgetNeed& need);

// Facts per chunk, for the policies.
std::vector<ChunkFacts> FactsOf(const ChunkLayout& layout);

}  // namespace gantry

#endif  // GANTRY_GEMINI_BUDGET_H_
