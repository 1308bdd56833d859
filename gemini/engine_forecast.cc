// What a step would be like, from its dry run alone.
#include <string>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "gemini/engine_impl.h"
#include "placement_policy/planner.h"

namespace gantry {
namespace {

// Rates that are not given are the same on every machine, so that equal runs decide alike.
MachineRates WithAssumed(MachineRates rates) {
  const auto fill = [](int64_t& rate, int64_t assumed) {
    if (rate == 0) rate = assumed;
  };
  fill(rates.host_to_device.bytes_per_second, kAssumedCopyRate);
  fill(rates.device_to_host.bytes_per_second, kAssumedCopyRate);
  fill(rates.file_read.bytes_per_second, kAssumedFileRate);
  fill(rates.file_write.bytes_per_second, kAssumedFileRate);
  fill(rates.host_update_bytes_per_second, kAssumedUpdateRate);
  fill(rates.device_memory_bytes_per_second, rates.host_update_bytes_per_second);
  return rates;
}

}  // namespace

absl::StatusOr<Nanoseconds> EngineImpl::MovementTime(std::string_view key) {
  GANTRY_CHECK(dry_run()) << "MovementTime after Seal";
  if (!dry_records_.contains(key)) {
    return InvalidArgument("there was no dry run of the step '", key, "'");
  }
  GANTRY_RETURN_IF_ERROR(ChooseLayout());
  std::map<std::string, CompiledPlan, std::less<>> plans;
  {
    // Seal makes its own.
    MutexLock lock(mutex_);
    plans = std::exchange(plans_, {});
  }
  const Trace trace = StepForPlanner(plans.find(key)->second).trace;
  Machine machine = MakeBudgetInput().machine;
  machine.rates = WithAssumed(options_.rates);
  PlannerOptions planner;
  planner.wait_for_norm = true;
  planner.host_updates_only = !machine.unified;
  planner.next_forward = false;
  planner.keep_sets_only = true;
  planner.all_may_leave = true;
  GANTRY_ASSIGN_OR_RETURN(const MovementDecision decision, PlanMovement(trace, machine, planner));
  return decision.predicted.elapsed;
}

}  // namespace gantry
